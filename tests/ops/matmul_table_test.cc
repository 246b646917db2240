/* SPDX-License-Identifier: MIT
 *
 * The measured table of rf_matmul: saved, and used by a later process; ignored if it is damaged,
 * belongs to another device, or names a path that cannot run. Every reader is a process of its own,
 * as a table is read once; so the test itself must not open a device.
 */
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include <ringforge/ops.h>

namespace
{

/* Runs in a child, with a device; returns body's result, 0 to 99. */
int in_child(const std::function<int(rf_device *)> &body)
{
    pid_t child = fork();
    if (child == 0) {
        rf_device *device = nullptr;
        if (rf_device_open(nullptr, nullptr, &device) != RF_OK)
            _exit(101);
        int result = body(device);
        rf_device_close(device);
        _exit(result);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 102;
}

const char *const names[] = {"none", "subgroup", "tiled", "cooperative", "workgroup"};
int number_of(const char *path)
{
    for (int i = 0; i < 5; i++)
        if (strcmp(path, names[i]) == 0)
            return i;
    return 50;
}

/* The path that a product of f32 (33,17) x (17,65) takes. */
int path_taken()
{
    return in_child(
        [](rf_device *device) { return number_of(matmul_path(device, RF_F32, 33, 65, 17)); });
}

class MatmulTable : public testing::Test
{
  protected:
    void SetUp() override
    {
        folder = testing::TempDir() + "table-XXXXXX";
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        setenv("RF_CACHE_DIR", folder.c_str(), 1);
        usual = path_taken();
        ASSERT_LT(usual, 5);
        other = usual == 2 ? "subgroup" : "tiled";
        if (in_child([&](rf_device *device) {
                rf_matmul_opts forced = {};
                forced.path = other.c_str();
                return number_of(matmul_path(device, RF_F32, 33, 65, 17, forced));
            }) == 0)
            GTEST_SKIP() << "this device runs one path only";
        choice.type = RF_F32;
        choice.m_class = rf_matmul_class(33);
        choice.n_class = rf_matmul_class(65);
        choice.k_class = rf_matmul_class(17);
        snprintf(choice.path, sizeof(choice.path), "%s", other.c_str());
    }
    void TearDown() override
    {
        unsetenv("RF_CACHE_DIR");
        std::string command = "rm -rf '" + folder + "'";
        EXPECT_EQ(system(command.c_str()), 0);
    }
    int save(uint32_t count)
    {
        return in_child([&](rf_device *device) {
            return rf_matmul_table_save(device, &choice, count, nullptr, 0) == RF_OK ? 0 : 1;
        });
    }
    std::string table() const
    {
        std::string name;
        DIR *dir = opendir(folder.c_str());
        for (dirent *item = readdir(dir); item; item = readdir(dir))
            if (strstr(item->d_name, ".matmul"))
                name = folder + "/" + item->d_name;
        closedir(dir);
        return name;
    }
    void write(const std::string &text) const
    {
        FILE *file = fopen(table().c_str(), "w");
        ASSERT_NE(file, nullptr);
        fputs(text.c_str(), file);
        fclose(file);
    }

    std::string folder, other;
    int usual = -1;
    rf_matmul_choice choice = {};
};

TEST(MatmulClass, IsTheLogarithmRoundedUp)
{
    EXPECT_EQ(rf_matmul_class(1), 0);
    EXPECT_EQ(rf_matmul_class(2), 1);
    EXPECT_EQ(rf_matmul_class(33), 6);
    EXPECT_EQ(rf_matmul_class(64), 6);
    EXPECT_EQ(rf_matmul_class(65), 7);
    EXPECT_EQ(rf_matmul_class(INT64_MAX), 62);
}

TEST_F(MatmulTable, OfAnEarlierProcessIsTaken)
{
    ASSERT_EQ(save(1), 0);
    EXPECT_EQ(path_taken(), number_of(other.c_str()));
    ASSERT_EQ(save(0), 0);
    EXPECT_EQ(path_taken(), usual);
}

TEST_F(MatmulTable, HoldsForItsTypeFormAndSizesOnly)
{
    ASSERT_EQ(save(1), 0);
    EXPECT_EQ(in_child([&](rf_device *device) {
                  rf_matmul_opts nt = {};
                  nt.transpose_b = true;
                  bool same = number_of(matmul_path(device, RF_F32, 33, 65, 17, nt)) == usual &&
                              number_of(matmul_path(device, RF_F32, 33, 64, 17)) == usual &&
                              other == matmul_path(device, RF_F32, 64, 128, 32);
                  rf_matmul_choice none[1] = {};
                  bool replaced = rf_matmul_table_use(device, nullptr, 0) == RF_OK &&
                                  number_of(matmul_path(device, RF_F32, 33, 65, 17)) == usual &&
                                  rf_matmul_table_use(device, &choice, 1) == RF_OK &&
                                  other == matmul_path(device, RF_F32, 33, 65, 17);
                  bool refused = rf_matmul_table_save(device, none, 1, nullptr, 0) == RF_EINVAL &&
                                 rf_matmul_table_use(nullptr, none, 1) == RF_EINVAL;
                  return same && replaced && refused ? 0 : 1;
              }),
              0);
}

TEST_F(MatmulTable, ThatIsDamagedOrOfAnotherDeviceIsIgnored)
{
    ASSERT_EQ(save(1), 0);
    std::string text;
    FILE *file = fopen(table().c_str(), "r");
    for (int c; (c = fgetc(file)) != EOF;)
        text += (char)c;
    fclose(file);
    const std::string head = text.substr(0, text.find('\n') + 1);
    const std::string line = "f32 nn 6 7 5 " + other + "\n";
    ASSERT_EQ(text, head + line + "end 1\n");
    for (const std::string &damaged :
         {std::string(), head + line, head + line + "end 2\n", line + "end 1\n",
          head + "f32 nn 6 7 5\nend 1\n", head + "f99 nn 6 7 5 " + other + "\nend 1\n",
          head + "f32 xx 6 7 5 " + other + "\nend 1\n",
          head + "f32 nn 6 7 99 " + other + "\nend 1\n",
          head + "f32 nn 6 7 5 ../../etc/passwd\nend 1\n", head + "f32 nn 6 7 5 nonsense\nend 1\n",
          head + std::string(100000, 'x') + "\nend 1\n",
          "ringforge-matmul 1 00 00 0\n" + line + "end 1\n"}) {
        write(damaged);
        EXPECT_EQ(path_taken(), usual) << damaged.substr(0, 200);
    }
    const std::string name = table();
    ASSERT_EQ(unlink(name.c_str()), 0);
    ASSERT_EQ(mkfifo(name.c_str(), 0600), 0); /* reading it would block forever */
    EXPECT_EQ(path_taken(), usual);
    ASSERT_EQ(unlink(name.c_str()), 0);
    ASSERT_EQ(save(0), 0);
    write(text);
    EXPECT_EQ(path_taken(), number_of(other.c_str()));
}

} // namespace
