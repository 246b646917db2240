// SPDX-License-Identifier: MIT
//
// A folder for one test, removed with its contents.
#ifndef RF_TESTS_TRAIN_FOLDER_H
#define RF_TESTS_TRAIN_FOLDER_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

class Folder
{
  public:
    Folder()
    {
        std::string name = (std::filesystem::temp_directory_path() / "ringforge-XXXXXX").string();
        if (!mkdtemp(name.data()))
            abort();
        path_ = name;
    }
    ~Folder()
    {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

    std::string path() const
    {
        return path_;
    }
    std::string path(const std::string &name) const
    {
        return path_ + "/" + name;
    }
    void write(const std::string &name, const std::string &bytes) const
    {
        std::ofstream(path(name), std::ios::binary) << bytes;
    }
    std::string read(const std::string &name) const
    {
        std::ifstream file(path(name), std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

  private:
    std::string path_;
};

#endif
