/* Kills the process group before the N-th call of one kind: OURO_SOAK_KILL=fsync:7. Loaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;

static void met(const char *kind) {
    const char *plan = getenv("OURO_SOAK_KILL");
    size_t length = strlen(kind);
    if (plan && !strncmp(plan, kind, length) && plan[length] == ':' &&
        atomic_fetch_add(&calls, 1) + 1 == atol(plan + length + 1)) {
        kill(0, SIGKILL);
        pause();
    }
}

/* Looked up once: dlsym takes a lock, which a child that was forked from a thread may never get. */
#define NEXT(name) ((__typeof__(&name))next_##name)
static void *next_write, *next_pwrite64, *next_fsync, *next_fdatasync, *next_rename, *next_renameat;

__attribute__((constructor)) static void look_up(void) {
    next_write = dlsym(RTLD_NEXT, "write");
    next_pwrite64 = dlsym(RTLD_NEXT, "pwrite64");
    next_fsync = dlsym(RTLD_NEXT, "fsync");
    next_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    next_rename = dlsym(RTLD_NEXT, "rename");
    next_renameat = dlsym(RTLD_NEXT, "renameat");
}

ssize_t write(int file, const void *data, size_t size) {
    met("write");
    return NEXT(write)(file, data, size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t place) {
    met("write");
    return NEXT(pwrite64)(file, data, size, place);
}

int fsync(int file) {
    met("fsync");
    return NEXT(fsync)(file);
}

int fdatasync(int file) {
    met("fsync");
    return NEXT(fdatasync)(file);
}

int rename(const char *from, const char *to) {
    met("rename");
    return NEXT(rename)(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    met("rename");
    return NEXT(renameat)(from_folder, from, to_folder, to);
}
