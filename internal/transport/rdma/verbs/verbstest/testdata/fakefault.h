/*
 * fakefault.h: what the environment asks of the fake (fakeverbs.c says what there is), and the log of what was made
 * and destroyed.
 */
#include "fakeverbs.h"

static struct fake_device devices[DEVICES];

struct fake_refusal {
	int device; /* -1: any */
	char name[32];
	int code;
};

static struct fake_refusal refusals[16];
static int n_refusals;

/* A test that asks for what the fake does not know would pass for the wrong reason. */
static void misspelt(const char *what) {
	fprintf(stderr, "fakeverbs: FAKEVERBS_FAULT: \"%s\" is unknown\n", what);
	abort();
}

static long *fault_field(struct fake_faults *f, const char *name) {
	const struct {
		const char *name;
		long *field;
	} known[] = {
		{"no-devices", &f->no_devices},
		{"iwarp", &f->iwarp},
		{"infiniband", &f->infiniband},
		{"port-down", &f->port_down},
		{"port-down-after", &f->port_down_after},
		{"removed-after", &f->removed_after},
		{"no-gid", &f->no_gid},
		{"few-cqe", &f->few_cqe},
		{"few-qps", &f->few_qps},
		{"few-wr", &f->few_wr},
		{"memlock", &f->memlock},
		{"bad-rkey", &f->bad_rkey},
		{"rnr", &f->rnr},
		{"no-dmabuf", &f->no_dmabuf},
		{"drop-imm", &f->drop_imm},
		{"slow", &f->slow},
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(known[i].name, name) == 0)
			return known[i].field;
	return NULL;
}

/* One of the list: [fakeN/]name[=value]. */
static void read_fault(char *word) {
	char *slash = strchr(word, '/'), *name = slash ? slash + 1 : word, *equals = strchr(name, '=');
	int only = -1;
	if (slash && (sscanf(word, "fake%d/", &only) != 1 || only < 0 || only >= DEVICES))
		misspelt(word);
	long value = equals ? atol(equals + 1) : 1;
	if (equals)
		*equals = 0;
	if (strncmp(name, "fail-", 5) == 0 && n_refusals < (int)(sizeof refusals / sizeof *refusals)) {
		struct fake_refusal *r = &refusals[n_refusals++];
		r->device = only;
		r->code = equals ? (int)value : EINVAL;
		snprintf(r->name, sizeof r->name, "%s", name + 5);
		return;
	}
	for (int i = 0; i < DEVICES; i++) {
		long *field = fault_field(&devices[i].fault, name);
		if (!field)
			misspelt(name);
		if (only < 0 || only == i)
			*field = value;
	}
}

static void read_faults(void) {
	const char *list = getenv("FAKEVERBS_FAULT");
	char *copy = strdup(list ? list : ""), *rest = copy;
	for (char *word; (word = strtok_r(rest, ",", &rest)) != NULL;)
		read_fault(word);
	free(copy);
}

/* The errno that the function shall fail with, or 0. */
static int refused(const struct fake_device *d, const char *name) {
	for (int i = 0; i < n_refusals; i++)
		if (strcmp(refusals[i].name, name) == 0 &&
		    (refusals[i].device < 0 || (d && d == &devices[refusals[i].device])))
			return refusals[i].code;
	return 0;
}

/* "+qp 4097", "-mr 512": a line each, so that a test can count what is left even of a process that was killed. */
__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
	const char *path = getenv("FAKEVERBS_LOG");
	if (!path)
		return;
	char line[128];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, line, (size_t)n) != n)
		abort();
	close(fd);
}
