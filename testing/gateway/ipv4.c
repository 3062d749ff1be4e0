/* Preloaded into nfs-ganesha: it gets no sockets of IPv6, and serves over IPv4 alone.
 *
 * Its Gluster back end identifies clients by their addresses, of which it keeps 16 bytes of a `sockaddr`; that of IPv6
 * is longer. Gluster gives a lease only to a client that is identified.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

int socket(int domain, int type, int protocol) {
    static int (*next)(int, int, int);
    if (domain == AF_INET6) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "socket");
    return next(domain, type, protocol);
}
