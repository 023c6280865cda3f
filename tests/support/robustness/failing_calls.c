/* Calls of the C library that fail, for LD_PRELOAD.

   Calls on files below the folder FAULT_FOLDER are counted, by kind, in the file FAULT_COUNTS, which all
   processes of a job share: a row for those that are no ranks, and one for each rank. From its FAULT_FIRST-th time on the call of kind FAULT_CALL fails FAULT_TIMES
   times with errno FAULT_ERRNO. A write whose errno is 0 writes half. FAULT_RANK: on this rank alone. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *const KINDS[] = {"open", "read", "write", "fsync", "rename", "unlink", "mkdir", "flock",
                                    "ftruncate", "close", "stat", "list"};
enum { OPEN, READ, WRITE, FSYNC, RENAME, UNLINK, MKDIR, FLOCK, FTRUNCATE, CLOSE, STAT, LIST, N_KINDS };

static long *counts;
static char folder[PATH_MAX];
static int chosen = -1, code;
static long first = 1, times;

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("FAULT_COUNTS"), *call = getenv("FAULT_CALL"), *rank = getenv("FAULT_RANK");
    const char *own = getenv("PMI_RANK"), *below = getenv("FAULT_FOLDER");
    if (!file || !below)
        return;
    strncpy(folder, below, sizeof folder - 1);
    for (int kind = 0; call && kind < N_KINDS; kind++)
        if (!strcmp(call, KINDS[kind]) && (!rank || (own && !strcmp(rank, own))))
            chosen = kind;
    if (chosen >= 0) {
        code = atoi(getenv("FAULT_ERRNO"));
        first = atol(getenv("FAULT_FIRST"));
        times = atol(getenv("FAULT_TIMES"));
    }
    int handle = syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0);
    if (handle < 0)
        return;
    int row = own ? atoi(own) + 1 : 0;
    size_t bytes = (row + 1) * N_KINDS * sizeof *counts;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    syscall(SYS_close, handle);
    if (shared != MAP_FAILED)
        counts = (long *)shared + row * N_KINDS;
}

static int is_below(const char *path) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

static int of_handle(int handle) {
    char name[64], path[PATH_MAX];
    if (!counts || handle < 0)
        return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", handle);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, name, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return is_below(path);
}

static int of_path(int at, const char *path) {
    char here[PATH_MAX];
    if (!counts || !path)
        return 0;
    if (path[0] == '/')
        return is_below(path);
    if (at != AT_FDCWD)
        return of_handle(at);
    return getcwd(here, sizeof here) && is_below(here);
}

/* Whether this call is to fail; errno says with what. */
static int fails(int kind, int counted) {
    int before = errno;
    if (!counted)
        return 0;
    long number = __sync_add_and_fetch(&counts[kind], 1);
    errno = before;
    if (kind != chosen || number < first || number - first >= times)
        return 0;
    errno = code;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int mode_of(int flags, va_list more) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
}

#define OPENS(name)                                                                                          \
    int name(const char *path, int flags, ...) {                                                             \
        va_list more;                                                                                        \
        va_start(more, flags);                                                                               \
        int mode = mode_of(flags, more);                                                                     \
        va_end(more);                                                                                        \
        return fails(OPEN, of_path(AT_FDCWD, path)) ? -1 : REAL(name)(path, flags, mode);                    \
    }
OPENS(open)
OPENS(open64)
#define OPENS_AT(name)                                                                                       \
    int name(int at, const char *path, int flags, ...) {                                                     \
        va_list more;                                                                                        \
        va_start(more, flags);                                                                               \
        int mode = mode_of(flags, more);                                                                     \
        va_end(more);                                                                                        \
        return fails(OPEN, of_path(at, path)) ? -1 : REAL(name)(at, path, flags, mode);                      \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

ssize_t read(int h, void *to, size_t n) { return fails(READ, of_handle(h)) ? -1 : REAL(read)(h, to, n); }
ssize_t pread(int h, void *to, size_t n, off_t at) {
    return fails(READ, of_handle(h)) ? -1 : REAL(pread)(h, to, n, at);
}
ssize_t pread64(int h, void *to, size_t n, off64_t at) {
    return fails(READ, of_handle(h)) ? -1 : REAL(pread64)(h, to, n, at);
}
size_t fread(void *to, size_t size, size_t n, FILE *stream) {
    return fails(READ, of_handle(fileno(stream))) ? 0 : REAL(fread)(to, size, n, stream);
}

/* Of a write that fails, how many of n to write all the same: n of those that do not, -1 for none. */
static ssize_t written(int handle, size_t n) {
    if (!fails(WRITE, of_handle(handle)))
        return n;
    return code ? -1 : (ssize_t)((n + 1) / 2);
}
ssize_t write(int h, const void *from, size_t n) {
    ssize_t m = written(h, n);
    return m < 0 ? -1 : REAL(write)(h, from, m);
}
ssize_t pwrite(int h, const void *from, size_t n, off_t at) {
    ssize_t m = written(h, n);
    return m < 0 ? -1 : REAL(pwrite)(h, from, m, at);
}
ssize_t pwrite64(int h, const void *from, size_t n, off64_t at) {
    ssize_t m = written(h, n);
    return m < 0 ? -1 : REAL(pwrite64)(h, from, m, at);
}
/* A stream goes on after a short write of its own: half of one is an error of the stream. */
size_t fwrite(const void *from, size_t size, size_t n, FILE *stream) {
    ssize_t m = written(fileno(stream), n);
    return m < 0 ? 0 : REAL(fwrite)(from, size, m, stream);
}

int fsync(int h) { return fails(FSYNC, of_handle(h)) ? -1 : REAL(fsync)(h); }
int fdatasync(int h) { return fails(FSYNC, of_handle(h)) ? -1 : REAL(fdatasync)(h); }
int rename(const char *a, const char *b) {
    return fails(RENAME, of_path(AT_FDCWD, a)) ? -1 : REAL(rename)(a, b);
}
int renameat(int s, const char *a, int t, const char *b) {
    return fails(RENAME, of_path(s, a)) ? -1 : REAL(renameat)(s, a, t, b);
}
int unlink(const char *path) { return fails(UNLINK, of_path(AT_FDCWD, path)) ? -1 : REAL(unlink)(path); }
int unlinkat(int at, const char *path, int flags) {
    return fails(UNLINK, of_path(at, path)) ? -1 : REAL(unlinkat)(at, path, flags);
}
int mkdir(const char *path, mode_t mode) {
    return fails(MKDIR, of_path(AT_FDCWD, path)) ? -1 : REAL(mkdir)(path, mode);
}
int flock(int h, int what) { return fails(FLOCK, of_handle(h)) ? -1 : REAL(flock)(h, what); }
int ftruncate(int h, off_t n) { return fails(FTRUNCATE, of_handle(h)) ? -1 : REAL(ftruncate)(h, n); }
int ftruncate64(int h, off64_t n) { return fails(FTRUNCATE, of_handle(h)) ? -1 : REAL(ftruncate64)(h, n); }
/* The file is closed whatever close says, as Linux has it. */
int close(int h) {
    int fail = fails(CLOSE, of_handle(h)), error = errno, result = REAL(close)(h);
    if (!fail)
        return result;
    errno = error;
    return -1;
}
int stat(const char *p, struct stat *to) { return fails(STAT, of_path(AT_FDCWD, p)) ? -1 : REAL(stat)(p, to); }
int stat64(const char *p, struct stat64 *to) {
    return fails(STAT, of_path(AT_FDCWD, p)) ? -1 : REAL(stat64)(p, to);
}
int lstat(const char *p, struct stat *to) {
    return fails(STAT, of_path(AT_FDCWD, p)) ? -1 : REAL(lstat)(p, to);
}
int lstat64(const char *p, struct stat64 *to) {
    return fails(STAT, of_path(AT_FDCWD, p)) ? -1 : REAL(lstat64)(p, to);
}
int fstat(int h, struct stat *to) { return fails(STAT, of_handle(h)) ? -1 : REAL(fstat)(h, to); }
int fstat64(int h, struct stat64 *to) { return fails(STAT, of_handle(h)) ? -1 : REAL(fstat64)(h, to); }
DIR *opendir(const char *path) { return fails(LIST, of_path(AT_FDCWD, path)) ? NULL : REAL(opendir)(path); }
