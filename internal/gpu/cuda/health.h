/* health.h: the state of a GPU and of its NVLinks, from NVML. */
#ifndef CUDA_HEALTH_H
#define CUDA_HEALTH_H

#include "libnvml.h"

/* Bits of cuda_health.have: the values that are known. */
enum {
	CUDA_HAVE_SM_CLOCK = 1 << 0,
	CUDA_HAVE_MAX_SM_CLOCK = 1 << 1,
	CUDA_HAVE_MEM_CLOCK = 1 << 2,
	CUDA_HAVE_TEMPERATURE = 1 << 3,
	CUDA_HAVE_POWER = 1 << 4,
	CUDA_HAVE_ECC = 1 << 5,
	CUDA_HAVE_TX = 1 << 6,
	CUDA_HAVE_RX = 1 << 7,
};

struct cuda_health {
	unsigned have;
	unsigned sm_clock_mhz, max_sm_clock_mhz, mem_clock_mhz, temperature_c, power_mw;
	unsigned long long ecc;
	unsigned long long reasons; /* NVML's mask of reasons for reduced clocks, 0 if unknown */
	unsigned long long tx_bytes, rx_bytes;
};

int cuda_health_read(const char *uuid, struct cuda_health *h, struct p2p_error *e);

/* NVLinks from one GPU towards another, direct or through switches. */
struct cuda_nvlink {
	int count;            /* active links; 0: NVLink does not connect the GPUs */
	unsigned mb_per_link; /* MB/s per direction, 0 if unknown */
};

/* a and b are UUIDs; pci is b's PCI address, "0000:3b:00.0". */
int cuda_nvlink_read(const char *a, const char *b, const char *pci, struct cuda_nvlink *l, struct p2p_error *e);

/* "580.159.04"; empty if unknown. */
void cuda_driver_version(char *version, size_t size);

#endif
