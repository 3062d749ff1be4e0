/* Preloaded into nfs-ganesha: each lease that its Gluster back end asks for is granted, without asking Gluster.
 *
 * Gluster refuses a lease on a file that is still open from its creation, as pynfs's are. Who else has the file open,
 * and when a delegation is recalled, nfs-ganesha decides by itself, and no one else uses the volume.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

/* nfs-ganesha loads back ends so that they find their own libraries first. */
void *dlopen(const char *name, int flags) {
    static void *(*next)(const char *, int);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    return next(name, flags & ~RTLD_DEEPBIND);
}

int glfs_lease(void *file, void *lease, void *recalled, void *data) {
    (void)file, (void)lease, (void)recalled, (void)data;
    return 0;
}
