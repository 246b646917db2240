// SPDX-License-Identifier: MIT
//
// Input files: a path that is not a regular file is named, and never waited for.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

extern "C" {
#include "base/base.h"
}

namespace
{

// "" if it can be read, else the reason.
std::string refusal(const std::string &path)
{
    const char *why = nullptr;
    FILE *file = rf_open_input(path.c_str(), &why);
    if (!file)
        return why;
    char text[8] = "";
    EXPECT_EQ(fread(text, 1, sizeof(text), file), 4u);
    EXPECT_STREQ(text, "text");
    fclose(file);
    return "";
}

} // namespace

TEST(Input, OnlyARegularFileIsOpenedAndNothingElseIsWaitedFor)
{
    std::string folder = testing::TempDir() + "input-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    auto path = [&](const char *name) { return folder + "/" + name; };
    FILE *file = fopen(path("file").c_str(), "w");
    ASSERT_NE(file, nullptr);
    fputs("text", file);
    fclose(file);
    ASSERT_EQ(symlink("file", path("link").c_str()), 0);
    ASSERT_EQ(symlink("pipe", path("link to pipe").c_str()), 0);
    ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path("socket").c_str());
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(listener, (sockaddr *)&address, sizeof(address)), 0);

    EXPECT_EQ(refusal(path("file")), "");
    EXPECT_EQ(refusal(path("link")), "");
    EXPECT_EQ(refusal(path("pipe")), "it is a pipe, not a file");
    EXPECT_EQ(refusal(path("link to pipe")), "it is a pipe, not a file");
    EXPECT_EQ(refusal(path("socket")), "it is a socket, not a file");
    EXPECT_EQ(refusal(folder), "it is a folder, not a file");
    EXPECT_EQ(refusal("/dev/zero"), "it is a device, not a file");
    EXPECT_NE(errno, ENOENT);
    EXPECT_EQ(refusal(path("none")), "No such file or directory");
    EXPECT_EQ(errno, ENOENT);
    close(listener);
    for (const char *name : {"file", "link", "link to pipe", "pipe", "socket"})
        unlink(path(name).c_str());
    rmdir(folder.c_str());
}
