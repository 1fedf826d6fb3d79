/*
 * fakenvml.c: an NVML for the two devices of fakecuda.c, which four NVLinks connect through a switch.
 *
 *   FAKE_NVML_INIT=CODE  nvmlInit_v2 fails
 *   FAKE_NVLINK=none     no NVLink; "other": the links end at another GPU
 *   FAKE_COUNTERS=none   no NVLink byte counters; "links": those of single links only
 * Built with -DOLD it has only the older name of the throttle function; with -DBARE only the required functions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int nvmlInit_v2(void) { return getenv("FAKE_NVML_INIT") ? atoi(getenv("FAKE_NVML_INIT")) : 0; }

const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "fake error"; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **dev) {
	if (strcmp(uuid, "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0") == 0)
		*dev = (void *)1;
	else if (strcmp(uuid, "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1") == 0)
		*dev = (void *)2;
	else
		return 6;
	return 0;
}

#ifndef BARE
static int asked(const char *var, const char *value) {
	const char *v = getenv(var);
	return v && strcmp(v, value) == 0;
}

int nvmlSystemGetDriverVersion(char *v, unsigned n) {
	snprintf(v, n, "580.159.04");
	return 0;
}

int nvmlDeviceGetClockInfo(void *dev, int type, unsigned *mhz) {
	(void)dev;
	*mhz = type == 1 ? 1980 : 3201;
	return 0;
}

int nvmlDeviceGetMaxClockInfo(void *dev, int type, unsigned *mhz) {
	(void)dev;
	*mhz = type == 1 ? 1985 : 3202;
	return 0;
}

int nvmlDeviceGetTemperature(void *dev, int sensor, unsigned *t) {
	(void)dev;
	*t = 31;
	return sensor;
}

int nvmlDeviceGetPowerUsage(void *dev, unsigned *mw) {
	(void)dev;
	*mw = 76500;
	return 0;
}

int nvmlDeviceGetTotalEccErrors(void *dev, int type, int counter, unsigned long long *n) {
	(void)dev;
	*n = 3;
	return type == 1 && counter == 0 ? 0 : 2;
}

#ifdef OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(void *dev, unsigned long long *mask) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(void *dev, unsigned long long *mask) {
#endif
	(void)dev;
	*mask = 0x1 | 0x2 | 0x10 | 0x100 | 0x4 | 0x40;
	return 0;
}

int nvmlDeviceGetP2PStatus(void *dev, void *peer, int index, int *status) {
	*status = dev == peer || asked("FAKE_NVLINK", "none");
	return index == 2 ? 0 : 2;
}

int nvmlDeviceGetNvLinkState(void *dev, unsigned link, int *active) {
	(void)dev;
	*active = link < 4 && !asked("FAKE_NVLINK", "none");
	return link < 18 ? 0 : 2;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *dev, unsigned link, int *type) {
	(void)dev;
	(void)link;
	*type = asked("FAKE_NVLINK", "other") ? 0 : 2;
	return 0;
}

struct pci {
	char legacy[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char id[32];
};

/* Two links end at the second device, the others elsewhere. */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *dev, unsigned link, struct pci *p) {
	(void)dev;
	memset(p, 0, sizeof *p);
	p->bus = link < 2 ? 0x3c : 0x77;
	return 0;
}

struct field {
	unsigned id, scope;
	long long timestamp, latency;
	int type, result;
	unsigned long long value;
};

int nvmlDeviceGetFieldValues(void *dev, int n, struct field *f) {
	(void)dev;
	for (int i = 0; i < n; i++, f++) {
		int all = f->scope == 0xffffffffu;
		int counter = f->id == 138 || f->id == 139;
		f->result =
			counter && (asked("FAKE_COUNTERS", "none") || (all && asked("FAKE_COUNTERS", "links"))) ? 3 : 0;
		f->type = f->id == 90 ? 1 : 3;
		f->value = f->id == 90 ? 26562 : (f->id == 138 ? 10 : 20) * (all ? 4 : 1);
	}
	return 0;
}
#endif
