/* libnvml.h: declarations of the part of NVML, the driver's management library, that is used; see libcuda.h. */
#ifndef CUDA_LIBNVML_H
#define CUDA_LIBNVML_H

#include "gpu/abi/p2p.h"
#include "gpu/dynlib/dynlib.h"

/* Results. */
enum {
	NVML_OK = 0,
	NVML_NOT_SUPPORTED = 3,
};

/* Options, with the function that takes them. */
enum {
	NVML_CLOCK_SM = 1, /* nvmlDeviceGetClockInfo */
	NVML_CLOCK_MEM = 2,
	NVML_TEMPERATURE_GPU = 0,
	NVML_ECC_UNCORRECTED = 1, /* nvmlDeviceGetTotalEccErrors */
	NVML_ECC_VOLATILE = 0,
	NVML_P2P_NVLINK = 2, /* nvmlDeviceGetP2PStatus; status 0 is "OK" */
	NVML_REMOTE_GPU = 0, /* nvmlDeviceGetNvLinkRemoteDeviceType */
};

/* Field IDs and value types of nvmlDeviceGetFieldValues. */
enum {
	NVML_FIELD_NVLINK_SPEED = 90, /* MB/s of one link */
	NVML_FIELD_NVLINK_TX = 138,   /* KiB of payload, cumulative; scope: a link, or NVML_SCOPE_ALL */
	NVML_FIELD_NVLINK_RX = 139,
	NVML_VALUE_U32 = 1,
	NVML_VALUE_U64 = 3,
};
#define NVML_SCOPE_ALL 0xffffffffu

/* A field and its value. */
struct nvml_field {
	unsigned id;
	unsigned scope;
	long long timestamp;
	long long latency_us;
	int type; /* NVML_VALUE_* */
	int result;
	union {
		unsigned u32;
		unsigned long long u64;
	} value;
};

struct nvml_pci {
	char legacy[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char id[32];
};

/* X(name, type, parameters, arguments). Devices are opaque pointers. */
#define NVML_REQUIRED(X)                                                                                               \
	X(nvmlInit_v2, int, (void), ())                                                                                \
	X(nvmlErrorString, const char *, (int code), (code))                                                           \
	X(nvmlDeviceGetHandleByUUID, int, (const char *uuid, void **dev), (uuid, dev))

#define NVML_OPTIONAL(X)                                                                                               \
	X(nvmlSystemGetDriverVersion, int, (char *version, unsigned size), (version, size))                            \
	X(nvmlDeviceGetClockInfo, int, (void *dev, int type, unsigned *mhz), (dev, type, mhz))                         \
	X(nvmlDeviceGetMaxClockInfo, int, (void *dev, int type, unsigned *mhz), (dev, type, mhz))                      \
	X(nvmlDeviceGetTemperature, int, (void *dev, int sensor, unsigned *celsius), (dev, sensor, celsius))           \
	X(nvmlDeviceGetPowerUsage, int, (void *dev, unsigned *mw), (dev, mw))                                          \
	X(nvmlDeviceGetTotalEccErrors, int, (void *dev, int type, int counter, unsigned long long *n),                 \
	  (dev, type, counter, n))                                                                                     \
	X(nvmlDeviceGetCurrentClocksEventReasons, int, (void *dev, unsigned long long *mask), (dev, mask))             \
	X(nvmlDeviceGetCurrentClocksThrottleReasons, int, (void *dev, unsigned long long *mask), (dev, mask))          \
	X(nvmlDeviceGetFieldValues, int, (void *dev, int n, struct nvml_field *fields), (dev, n, fields))              \
	X(nvmlDeviceGetP2PStatus, int, (void *dev, void *peer, int index, int *status), (dev, peer, index, status))    \
	X(nvmlDeviceGetNvLinkState, int, (void *dev, unsigned link, int *active), (dev, link, active))                 \
	X(nvmlDeviceGetNvLinkRemoteDeviceType, int, (void *dev, unsigned link, int *type), (dev, link, type))          \
	X(nvmlDeviceGetNvLinkRemotePciInfo_v2, int, (void *dev, unsigned link, struct nvml_pci *pci), (dev, link, pci))

struct nvml_functions {
	NVML_REQUIRED(P2P_POINTER)
	NVML_OPTIONAL(P2P_POINTER)
};

/* Filled once nvml_library is loaded; read-only afterwards. */
extern struct nvml_functions nvml_functions;
extern const struct p2p_library nvml_library;

#define X(name, type, params, args)                                                                                    \
	static inline type name params { return nvml_functions.name args; }
NVML_REQUIRED(X)
#undef X
#define X(name, type, params, args)                                                                                    \
	static inline type name params { return nvml_functions.name ? nvml_functions.name args : NVML_NOT_SUPPORTED; }
NVML_OPTIONAL(X)
#undef X

/* Sets *e to "what: text (code)" and returns P2P_ERR_DEVICE. */
int nvml_fail(struct p2p_error *e, const char *what, int native);

/* Initialises the library. Returns P2P_OK or P2P_ERR_DEVICE. */
int nvml_start(struct p2p_error *e);

#endif
