#include "formats/hub.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "formats/checkpoint.h"
#include "formats/test_files.h"

namespace drafthouse {
namespace {

using testing::TempFolder;

// Sets or removes a variable for the life of the object.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class Hub : public ::testing::Test {
 protected:
  void cached(const std::string& repository, const std::string& revision) {
    cache_.write(repository + "/snapshots/" + revision + "/config.json", "{}");
  }

  TempFolder cache_;
  Variable hub_{"HF_HUB_CACHE", cache_.path().c_str()};
};

TEST_F(Hub, FindsTheMainRevisionAndNamedOnes) {
  cached("models--org--name", "aaaa");
  cached("models--org--name", "bbbb");
  cache_.write("models--org--name/refs/main", "aaaa\n");
  cache_.write("models--org--name/refs/v1", "bbbb");
  const std::string folder = cache_ / "models--org--name/snapshots/";
  EXPECT_EQ(resolve_model("org/name").value(), folder + "aaaa");
  EXPECT_EQ(resolve_model("org/name@v1").value(), folder + "bbbb");
  EXPECT_EQ(resolve_model("org/name@bbbb").value(), folder + "bbbb");
  auto missing = resolve_model("org/name@cccc");
  EXPECT_EQ(missing.status().code(), Code::not_found);
  EXPECT_NE(missing.status().message().find("bbbb"), std::string::npos);
}

TEST_F(Hub, SaysWhereItLooked) {
  for (const char* name : {"org/other", "bare"}) {
    auto missing = resolve_model(name);
    EXPECT_EQ(missing.status().code(), Code::not_found);
    EXPECT_NE(missing.status().message().find(cache_.path()), std::string::npos);
  }
}

TEST_F(Hub, NamesCannotLeaveTheCache) {
  cache_.write("models--org--name/refs/main", "../../../elsewhere");
  for (const char* name : {"../org", "org/..", "org/name@../../x", "org/name@", "@x", "a/b/c",
                           "org/na me", "/no/such/folder", "org//name", "org/name"}) {
    EXPECT_EQ(resolve_model(name).status().code(), Code::not_found) << name;
  }
  EXPECT_EQ(resolve_model("").status().code(), Code::invalid_argument);
  EXPECT_EQ(resolve_model(std::string("a\0b", 3)).status().code(), Code::invalid_argument);
}

TEST_F(Hub, SaysWhyACachedModelCannotBeFollowed) {
  namespace fs = std::filesystem;
  fs::create_directory_symlink("models--org--loop", cache_ / "models--org--loop");
  EXPECT_NE(resolve_model("org/loop").status().message().find("symbolic links"), std::string::npos);
  cached("models--org--name", "aaaa");
  fs::create_directories(cache_ / "models--org--name/refs");
  fs::create_symlink("main", cache_ / "models--org--name/refs/main");
  EXPECT_NE(resolve_model("org/name").status().message().find("refs/main: "), std::string::npos);
}

TEST_F(Hub, APathWinsOverTheCache) {
  TempFolder folder;
  folder.write("model/config.json", "{}");
  EXPECT_EQ(resolve_model(folder / "model").value(), folder / "model");
  std::filesystem::create_directory_symlink(folder / "model", folder / "link");
  EXPECT_EQ(resolve_model(folder / "link").value(), folder / "model");
  folder.write("blob", "x");
  std::filesystem::create_symlink(folder / "blob", folder / "m.gguf");
  EXPECT_EQ(resolve_model(folder / "m.gguf").value(), folder / "m.gguf");
}

TEST(HubFolders, FollowHuggingFacesOrder) {
  TempFolder home;
  Variable a("HF_HUB_CACHE", nullptr), b("HUGGINGFACE_HUB_CACHE", nullptr), c("HF_HOME", nullptr);
  Variable d("XDG_CACHE_HOME", nullptr), e("HOME", home.path().c_str());
  const auto looked = [] { return resolve_model("org/name").status().message(); };
  EXPECT_NE(looked().find(home / ".cache/huggingface/hub"), std::string::npos);
  Variable f("HF_HOME", (home / "hf").c_str());
  EXPECT_NE(looked().find(home / "hf/hub"), std::string::npos);
  Variable g("HF_HUB_CACHE", (home / "direct").c_str());
  EXPECT_NE(looked().find(home / "direct/models--"), std::string::npos);
}

}  // namespace
}  // namespace drafthouse
