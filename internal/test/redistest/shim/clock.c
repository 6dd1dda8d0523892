// A wall clock under a test's control, for LD_PRELOAD. Only the wall clock is
// changed; the monotonic one stays true.
//
// The file named by REDISTEST_CLOCK holds int64s: which of two settings is valid (0 or 1), and
// the settings {base ns, offset ns, rate ppm}. A writer fills the other setting and then
// switches, so a reader never sees half of one.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *setting;

// Before the constructor has run, and without the file, the clock is true.
__attribute__((constructor)) static void open_setting(void) {
	const char *path = getenv("REDISTEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0) return;
	void *p = mmap(0, 7 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED) setting = p;
	close(fd);
}

static int64_t wall(clockid_t id) {
	struct timespec t;
	syscall(SYS_clock_gettime, id, &t);
	int64_t now = t.tv_sec * 1000000000LL + t.tv_nsec;
	if (!setting) return now;
	volatile int64_t *s = setting + 1 + 3 * (setting[0] & 1);
	return now + s[1] + (int64_t)((__int128)(now - s[0]) * s[2] / 1000000);
}

int clock_gettime(clockid_t id, struct timespec *t) {
	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, id, t);
	int64_t now = wall(id);
	t->tv_sec = now / 1000000000;
	t->tv_nsec = now % 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	int64_t now = wall(CLOCK_REALTIME);
	t->tv_sec = now / 1000000000;
	t->tv_usec = now % 1000000000 / 1000;
	return 0;
}

time_t time(time_t *p) {
	time_t now = wall(CLOCK_REALTIME) / 1000000000;
	if (p) *p = now;
	return now;
}
