/* libnvml.h: the part of NVML, the driver's management library, that is used here; made like libcuda.h. */
#ifndef CUDA_LIBNVML_H
#define CUDA_LIBNVML_H

#include "gpu/abi/p2p.h"

/* Results. */
enum {
	NVML_OK = 0,
	NVML_NOT_SUPPORTED = 3,
};

/* Options, under the function that takes them. */
enum {
	NVML_CLOCK_SM = 1, /* nvmlDeviceGetClockInfo */
	NVML_CLOCK_MEM = 2,
	NVML_TEMPERATURE_GPU = 0,
	NVML_ECC_UNCORRECTED = 1, /* nvmlDeviceGetTotalEccErrors */
	NVML_ECC_VOLATILE = 0,
	NVML_P2P_NVLINK = 2, /* nvmlDeviceGetP2PStatus; status 0 is "OK" */
	NVML_REMOTE_GPU = 0, /* nvmlDeviceGetNvLinkRemoteDeviceType */
};

/* Values that nvmlDeviceGetFieldValues knows. */
enum {
	NVML_FIELD_NVLINK_SPEED = 90, /* MB/s of one link */
	NVML_FIELD_NVLINK_TX = 138,   /* KiB of payload since some moment; scope: a link, or all */
	NVML_FIELD_NVLINK_RX = 139,
	NVML_VALUE_U32 = 1,
	NVML_VALUE_U64 = 3,
};
#define NVML_SCOPE_ALL 0xffffffffu

/* A question and its answer. */
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

/* X(name, parameters, arguments). Devices are opaque pointers. */
#define NVML_REQUIRED(X)                                                                                               \
	X(nvmlInit_v2, (void), ())                                                                                     \
	X(nvmlDeviceGetHandleByUUID, (const char *uuid, void **dev), (uuid, dev))

#define NVML_OPTIONAL(X)                                                                                               \
	X(nvmlSystemGetDriverVersion, (char *version, unsigned size), (version, size))                                 \
	X(nvmlDeviceGetClockInfo, (void *dev, int type, unsigned *mhz), (dev, type, mhz))                              \
	X(nvmlDeviceGetMaxClockInfo, (void *dev, int type, unsigned *mhz), (dev, type, mhz))                           \
	X(nvmlDeviceGetTemperature, (void *dev, int sensor, unsigned *celsius), (dev, sensor, celsius))                \
	X(nvmlDeviceGetPowerUsage, (void *dev, unsigned *mw), (dev, mw))                                               \
	X(nvmlDeviceGetTotalEccErrors, (void *dev, int type, int counter, unsigned long long *n),                      \
	  (dev, type, counter, n))                                                                                     \
	X(nvmlDeviceGetCurrentClocksEventReasons, (void *dev, unsigned long long *mask), (dev, mask))                  \
	X(nvmlDeviceGetCurrentClocksThrottleReasons, (void *dev, unsigned long long *mask), (dev, mask))               \
	X(nvmlDeviceGetFieldValues, (void *dev, int n, struct nvml_field *fields), (dev, n, fields))                   \
	X(nvmlDeviceGetP2PStatus, (void *dev, void *peer, int index, int *status), (dev, peer, index, status))         \
	X(nvmlDeviceGetNvLinkState, (void *dev, unsigned link, int *active), (dev, link, active))                      \
	X(nvmlDeviceGetNvLinkRemoteDeviceType, (void *dev, unsigned link, int *type), (dev, link, type))               \
	X(nvmlDeviceGetNvLinkRemotePciInfo_v2, (void *dev, unsigned link, struct nvml_pci *pci), (dev, link, pci))

#define X(name, params, args) int(*name) params;
struct nvml_functions {
	NVML_REQUIRED(X)
	NVML_OPTIONAL(X)
	const char *(*nvmlErrorString)(int code);
};
#undef X

/* Filled by nvml_load; read-only afterwards. */
extern struct nvml_functions nvml_functions;

#define X(name, params, args)                                                                                          \
	static inline int name params { return nvml_functions.name args; }
NVML_REQUIRED(X)
#undef X
#define X(name, params, args)                                                                                          \
	static inline int name params { return nvml_functions.name ? nvml_functions.name args : NVML_NOT_SUPPORTED; }
NVML_OPTIONAL(X)
#undef X

/* Finds and starts libnvidia-ml.so.1, or what P2PBENCH_LIBNVML names. Returns 0, or -1 with the reason in why. */
int nvml_load(char *why, size_t size);

/* Sets *e to "what: text (code)" and returns P2P_ERR_DEVICE. */
int nvml_fail(struct p2p_error *e, const char *what, int native);

#endif
