// SPDX-License-Identifier: MIT
//
// A TCP port for a job of a test.
#ifndef RF_TESTS_SUPPORT_FREE_PORT_H
#define RF_TESTS_SUPPORT_FREE_PORT_H

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

// A port that is free now; the small window until it is used is accepted.
inline int free_port()
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    bind(fd, (sockaddr *)&address, sizeof address);
    getsockname(fd, (sockaddr *)&address, &length);
    close(fd);
    return ntohs(address.sin_port);
}

#endif
