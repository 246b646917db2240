/* SPDX-License-Identifier: MIT
 *
 * Plain TCP helpers of the control link. Independent of the bytes sent, which are link.c's.
 */
#define _GNU_SOURCE /* accept4 */
#include "socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <ringforge/ringforge.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

static void address_text(const struct sockaddr *address, char *out, size_t bytes)
{
    socklen_t length =
        address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (getnameinfo(address, length, out, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST))
        snprintf(out, bytes, "127.0.0.1");
    /* An IPv4 peer of an IPv6 socket. */
    if (strncmp(out, "::ffff:", 7) == 0)
        memmove(out, out + 7, strlen(out + 7) + 1);
}

static int resolve(const char *host, int port, struct addrinfo **out)
{
    char service[16];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof(service), "%d", port);
    /* localhost is this machine even if no hosts file says so (RFC 6761), and the same address on
     * all ranks. */
    int rc = getaddrinfo(strcasecmp(host, "localhost") ? host : "127.0.0.1", service, &hints, out);
    if (rc)
        return rf_fail(RF_EAGAIN, "host %s has no address: %s", host, gai_strerror(rc));
    return 0;
}

int rf_host_is_loopback(const char *host, bool *out)
{
    struct addrinfo *list = NULL;
    if (resolve(host, 0, &list) < 0)
        return rf_fail(RF_EINVAL, "host %s has no address", host);
    *out = true;
    for (struct addrinfo *ai = list; ai; ai = ai->ai_next)
        if (!is_loopback(ai->ai_addr))
            *out = false;
    freeaddrinfo(list);
    return 0;
}

static void set_options(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int listen_on(const struct addrinfo *ai, int *out)
{
    int one = 1, zero = 0;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (ai->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, SOMAXCONN)) {
        int error = errno;
        close(fd);
        return error;
    }
    *out = fd;
    return 0;
}

static void make_wildcard(struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        ((struct sockaddr_in *)address)->sin_addr.s_addr = htonl(INADDR_ANY);
    else
        ((struct sockaddr_in6 *)address)->sin6_addr = in6addr_any;
}

static int port_of(int fd)
{
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof(own);
    getsockname(fd, (struct sockaddr *)&own, &length);
    return ntohs(own.ss_family == AF_INET ? ((struct sockaddr_in *)&own)->sin_port
                                          : ((struct sockaddr_in6 *)&own)->sin6_port);
}

int rf_socket_listen(const char *host, int port, bool everywhere, int *out, int *bound_port)
{
    struct addrinfo *list = NULL;
    if (resolve(host, port, &list) < 0)
        return rf_fail(RF_EINVAL, "no port can be opened: host %s has no address", host);
    int error = EADDRNOTAVAIL, fd = -1;
    /* IPv4 first, so that "localhost" has the same meaning on all ranks. */
    for (int family = 0; family < 2 && fd < 0 && error != EADDRINUSE; family++)
        for (struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next) {
            if (ai->ai_family != (family ? AF_INET6 : AF_INET))
                continue;
            if (everywhere)
                make_wildcard(ai->ai_addr);
            error = listen_on(ai, &fd);
            if (error == EADDRINUSE)
                break;
        }
    freeaddrinfo(list);
    if (fd < 0 && error == EADDRINUSE)
        return rf_fail(RF_EBUSY,
                       "port %d on %s is in use; choose another with RF_PORT, or MASTER_PORT "
                       "or the URL, the same on every rank",
                       port, host);
    if (fd < 0)
        return rf_fail(RF_ENET,
                       "no port can be opened on %s, port %d: %s; it must be an address of this "
                       "host, which for rank 0 is MASTER_ADDR",
                       host, port, strerror(error));
    *out = fd;
    *bound_port = port_of(fd);
    return 0;
}

bool rf_socket_wait(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd item = {.fd = fd, .events = events};
        int rc = poll(&item, 1, rf_poll_ms(deadline_ns, rf_now_ns()));
        if (rc > 0)
            return true;
        if (rc < 0 && errno != EINTR)
            return false;
        if (rf_now_ns() >= deadline_ns)
            return false;
    }
}

/* A connection to a port without a listener can reach itself if the kernel picks that very port for
 * this end. */
static bool is_connected_to_itself(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_length = sizeof(own), peer_length = sizeof(peer);
    getsockname(fd, (struct sockaddr *)&own, &own_length);
    getpeername(fd, (struct sockaddr *)&peer, &peer_length);
    return own_length == peer_length && memcmp(&own, &peer, own_length) == 0;
}

static int connect_to(const struct addrinfo *ai, uint64_t deadline_ns, int *out)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int error = connect(fd, ai->ai_addr, ai->ai_addrlen) ? errno : 0;
    if (error == EINPROGRESS) {
        socklen_t length = sizeof(error);
        if (!rf_socket_wait(fd, POLLOUT, deadline_ns))
            error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length))
            error = errno;
    }
    if (error == 0 && is_connected_to_itself(fd))
        error = ECONNREFUSED;
    if (error) {
        close(fd);
        return error;
    }
    set_options(fd);
    *out = fd;
    return 0;
}

int rf_socket_connect(const char *host, int port, uint64_t deadline_ns, int *out)
{
    struct addrinfo *list = NULL;
    RETURN_IF_ERROR(resolve(host, port, &list));
    int error = EADDRNOTAVAIL;
    for (struct addrinfo *ai = list; ai && error; ai = ai->ai_next)
        error = connect_to(ai, deadline_ns, out);
    freeaddrinfo(list);
    if (error == EMFILE || error == ENFILE)
        return rf_socket_fail_files("each rank needs 2, and 1 more in the process of rank 0");
    if (error)
        return rf_fail(RF_EAGAIN, "rank 0 cannot be reached at %s port %d: %s", host, port,
                       strerror(error));
    return 0;
}

bool rf_socket_is_deserted(const char *host, int port, uint64_t deadline_ns)
{
    struct addrinfo *list = NULL;
    int fd = -1;
    if (resolve(host, port, &list) < 0)
        return false;
    int error = connect_to(list, deadline_ns, &fd);
    freeaddrinfo(list);
    if (error == 0)
        close(fd);
    return error == ECONNREFUSED;
}

int rf_socket_fail_files(const char *need)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    return rf_fail(RF_ENET,
                   "no file can be opened: this process may have %llu, and all are in use; %s; "
                   "raise the limit with ulimit -n (at most %llu), or run fewer ranks here",
                   (unsigned long long)limit.rlim_cur, need, (unsigned long long)limit.rlim_max);
}

int rf_socket_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        set_options(fd);
    return fd;
}

void rf_socket_local_address(int fd, char *out, size_t bytes, bool *loopback)
{
    struct sockaddr_storage own = {.ss_family = AF_INET};
    socklen_t length = sizeof(own);
    getsockname(fd, (struct sockaddr *)&own, &length);
    address_text((struct sockaddr *)&own, out, bytes);
    *loopback = is_loopback((struct sockaddr *)&own);
}

bool rf_socket_peer_is_loopback(int fd)
{
    struct sockaddr_storage peer = {0};
    socklen_t length = sizeof(peer);
    return getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
           is_loopback((struct sockaddr *)&peer);
}

void rf_socket_limit_silence(int fd, uint64_t ns)
{
    unsigned int ms = ns / 1000000 < INT32_MAX ? (unsigned int)(ns / 1000000) : INT32_MAX;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

void rf_socket_end_sending(int fd)
{
    shutdown(fd, SHUT_WR);
}

void rf_host_address(char *out, size_t bytes)
{
    const char *named = rf_env("RF_INTERFACE");
    struct ifaddrs *list = NULL;
    snprintf(out, bytes, "%s", named && *named ? named : "127.0.0.1");
    if ((named && *named) || getifaddrs(&list))
        return;
    for (struct ifaddrs *item = list; item; item = item->ifa_next) {
        if (!item->ifa_addr || item->ifa_addr->sa_family != AF_INET ||
            !(item->ifa_flags & IFF_UP) || is_loopback(item->ifa_addr))
            continue;
        address_text(item->ifa_addr, out, bytes);
        break;
    }
    freeifaddrs(list);
}
