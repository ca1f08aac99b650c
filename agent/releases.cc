#include "releases.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "failure.h"
#include "manifest.h"

namespace agent {
namespace {

// Where releases lie below the home folder, and the link to the one in use.
constexpr const char* kReleases = "/.local/share/edgedeploy/releases/";
constexpr const char* kCurrent = "/current";

std::string HomeFolder() {
  if (const char* home = std::getenv("HOME"); home && *home) return home;
  char text[1 << 12];
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(getuid(), &entry, text, sizeof text, &found) != 0 || !found) {
    throw Failure(Code::kOther, "the user's home folder is not known", "set HOME");
  }
  return found->pw_dir;
}

}  // namespace

std::string PathOfRelease(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  if (!IsModelName(name)) {
    throw Failure(Code::kUsage, "'" + name + "' is not a model name", "the path of a folder has a slash in it");
  }
  return HomeFolder() + kReleases + name + kCurrent;
}

std::string RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
  if (!real) throw Failure(Code::kPackage, "there is no release " + path, SystemError());
  return real.get();
}

}  // namespace agent
