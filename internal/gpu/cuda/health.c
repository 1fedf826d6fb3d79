#include "health.h"

/* More links than any GPU has. NVML reports links beyond the last as an error, so they count as inactive. */
enum { MAX_LINKS = 64 };

static int find(const char *uuid, void **dev, struct p2p_error *e) {
	int native = nvmlDeviceGetHandleByUUID(uuid, dev);
	return native == NVML_OK ? P2P_OK : nvml_fail(e, "nvmlDeviceGetHandleByUUID", native);
}

/* Reads one field; 0 if it is not available or its type is unknown. */
static int field(void *dev, unsigned id, unsigned scope, unsigned long long *value) {
	struct nvml_field f = {.id = id, .scope = scope};
	if (nvmlDeviceGetFieldValues(dev, 1, &f) != NVML_OK || f.result != NVML_OK)
		return 0;
	if (f.type != NVML_VALUE_U32 && f.type != NVML_VALUE_U64)
		return 0;
	*value = f.type == NVML_VALUE_U32 ? f.value.u32 : f.value.u64;
	return 1;
}

static int active(void *dev, unsigned link) {
	int on = 0;
	return nvmlDeviceGetNvLinkState(dev, link, &on) == NVML_OK && on;
}

/* Bytes over all links: NVML's sum, or if NVML has none, the sum over the single links. */
static int link_bytes(void *dev, unsigned id, unsigned long long *bytes) {
	unsigned long long kib = 0, one;
	int links = 0, summed = field(dev, id, NVML_SCOPE_ALL, &kib);
	for (unsigned link = 0; !summed && link < MAX_LINKS; link++) {
		if (!active(dev, link))
			continue;
		if (!field(dev, id, link, &one))
			return 0;
		kib += one;
		links++;
	}
	*bytes = kib << 10;
	return summed || links;
}

static void note(struct cuda_health *h, unsigned bit, int ok) {
	if (ok)
		h->have |= bit;
}

int cuda_health_read(const char *uuid, struct cuda_health *h, struct p2p_error *e) {
	void *dev;
	memset(h, 0, sizeof *h);
	int rc = find(uuid, &dev, e);
	if (rc)
		return rc;
	note(h, CUDA_HAVE_SM_CLOCK, nvmlDeviceGetClockInfo(dev, NVML_CLOCK_SM, &h->sm_clock_mhz) == NVML_OK);
	note(h, CUDA_HAVE_MAX_SM_CLOCK, nvmlDeviceGetMaxClockInfo(dev, NVML_CLOCK_SM, &h->max_sm_clock_mhz) == NVML_OK);
	note(h, CUDA_HAVE_MEM_CLOCK, nvmlDeviceGetClockInfo(dev, NVML_CLOCK_MEM, &h->mem_clock_mhz) == NVML_OK);
	note(h, CUDA_HAVE_TEMPERATURE,
	     nvmlDeviceGetTemperature(dev, NVML_TEMPERATURE_GPU, &h->temperature_c) == NVML_OK);
	note(h, CUDA_HAVE_POWER, nvmlDeviceGetPowerUsage(dev, &h->power_mw) == NVML_OK);
	note(h, CUDA_HAVE_ECC,
	     nvmlDeviceGetTotalEccErrors(dev, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &h->ecc) == NVML_OK);
	note(h, CUDA_HAVE_TX, link_bytes(dev, NVML_FIELD_NVLINK_TX, &h->tx_bytes));
	note(h, CUDA_HAVE_RX, link_bytes(dev, NVML_FIELD_NVLINK_RX, &h->rx_bytes));
	if (nvmlDeviceGetCurrentClocksEventReasons(dev, &h->reasons) != NVML_OK &&
	    nvmlDeviceGetCurrentClocksThrottleReasons(dev, &h->reasons) != NVML_OK)
		h->reasons = 0;
	return P2P_OK;
}

/* Whether a link leads to the peer: yes, unless it is known to end at another GPU. */
static int leads_to(void *dev, unsigned link, const char *pci) {
	struct nvml_pci remote;
	int type;
	char id[32];
	if (nvmlDeviceGetNvLinkRemoteDeviceType(dev, link, &type) != NVML_OK || type != NVML_REMOTE_GPU)
		return 1;
	if (nvmlDeviceGetNvLinkRemotePciInfo_v2(dev, link, &remote) != NVML_OK)
		return 1;
	snprintf(id, sizeof id, "%04x:%02x:%02x.0", remote.domain, remote.bus, remote.device);
	return strcmp(id, pci) == 0;
}

int cuda_nvlink_read(const char *a, const char *b, const char *pci, struct cuda_nvlink *l, struct p2p_error *e) {
	void *from, *to;
	unsigned long long speed;
	int rc, status = -1;
	memset(l, 0, sizeof *l);
	if ((rc = find(a, &from, e)) || (rc = find(b, &to, e)))
		return rc;
	if (nvmlDeviceGetP2PStatus(from, to, NVML_P2P_NVLINK, &status) != NVML_OK || status != 0)
		return P2P_OK;
	for (unsigned link = 0; link < MAX_LINKS; link++) {
		if (!active(from, link) || !leads_to(from, link, pci))
			continue;
		l->count++;
		if (!l->mb_per_link && field(from, NVML_FIELD_NVLINK_SPEED, link, &speed))
			l->mb_per_link = (unsigned)speed;
	}
	return P2P_OK;
}

void cuda_driver_version(char *version, size_t size) {
	version[0] = '\0';
	if (nvmlSystemGetDriverVersion(version, (unsigned)size) != NVML_OK)
		version[0] = '\0';
}
