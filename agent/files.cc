#include "files.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "sha256.h"

namespace agent {
namespace {

// A manifest is a few kB; edgedeploy refuses larger ones as well.
constexpr off_t kMaximumManifest = 1 << 20;

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

// Opens a name of at most one folder below `root` without following links, and not blocking on a pipe.
Descriptor OpenPlain(int root, const std::string& name) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return Descriptor(openat(root, name.c_str(), kFlags));
  const Descriptor folder(openat(root, name.substr(0, slash).c_str(), kFlags | O_DIRECTORY));
  return Descriptor(folder ? openat(folder.get(), name.c_str() + slash + 1, kFlags) : -1);
}

Descriptor OpenChecked(int root, const std::string& name, struct stat* state) {
  Descriptor file = OpenPlain(root, name);
  if (!file || fstat(file.get(), state) != 0) {
    const std::string why = errno == ELOOP ? "it is a link" : SystemError();
    throw Failure(Code::kPackage, "cannot open " + name + " of the package", why);
  }
  if (!S_ISREG(state->st_mode)) throw Failure(Code::kPackage, name + " is not a plain file");
  return file;
}

}  // namespace

size_t Utf8Size(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const int first = byte(0);
  if (first < 0x80) return 1;
  // The shortest form, and no surrogates.
  const int least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const int most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  const size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  bool valid = first >= 0xC2 && first <= 0xF4 && byte(1) >= least && byte(1) <= most;
  for (size_t i = 2; i < size; ++i) valid = valid && (byte(i) & 0xC0) == 0x80;
  return valid ? size : 0;
}

std::string Printable(std::string_view text, bool lines) {
  // Those of ISO 6429, and Unicode's marks of the direction of writing and of lines.
  const auto is_control = [](uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x61C || c == 0x200E || c == 0x200F ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  };
  std::string printable;
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const size_t size = Utf8Size(text.substr(at));
    uint32_t character = size > 1 ? first & (0x7F >> size) : first;
    for (size_t i = 1; i < size; ++i) character = character << 6 | (text[at + i] & 0x3F);
    if (size > 0 && (!is_control(character) || (lines && character == '\n'))) {
      printable += text.substr(at, size);
    } else {
      char escape[8];
      std::snprintf(escape, sizeof escape, character < 0x100 ? "\\x%02x" : "\\u%04x", character);
      printable += escape;
    }
    at += std::max<size_t>(size, 1);
  }
  return printable;
}

std::string SystemError() { return std::strerror(errno); }

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

std::pair<Descriptor, Descriptor> Pipe(const std::string& failure) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Failure(Code::kOther, failure, SystemError());
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

ssize_t ReadSome(int descriptor, void* data, size_t size) { return TEMP_FAILURE_RETRY(read(descriptor, data, size)); }

void ReadExactly(int descriptor, void* data, size_t size, const std::string& name, Code code) {
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ReadSome(descriptor, static_cast<char*>(data) + done, size - done);
    if (count < 0) throw Failure(code, "cannot read " + name, SystemError());
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  char more;
  if (done < size || ReadSome(descriptor, &more, 1) > 0) {
    const std::string found = done < size ? "only " + std::to_string(done) : "more than " + std::to_string(size);
    throw Failure(code, name + " needs " + std::to_string(size) + " bytes", "it has " + found);
  }
}

void ReadFile(const std::string& path, void* data, size_t size, Code code) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw Failure(code, "cannot open " + path, SystemError());
  ReadExactly(file.get(), data, size, path, code);
}

std::string ReadSystemFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  std::string text = content.str();
  // The device tree ends its strings with a zero.
  const size_t last = text.find_last_not_of(std::string(" \t\n\0", 4));
  text.resize(last == std::string::npos ? 0 : last + 1);
  return text;
}

bool BufferedReader::Fill(void* data, size_t size) {
  auto* target = static_cast<char*>(data);
  while (size > 0) {
    if (begin_ == end_ && !Refill()) return false;
    const size_t count = std::min(size, end_ - begin_);
    if (target) target = std::copy_n(buffer_ + begin_, count, target);
    begin_ += count;
    size -= count;
  }
  return true;
}

bool BufferedReader::Line(std::string* line, size_t most) {
  while (begin_ < end_ || Refill()) {
    const char* begin = buffer_ + begin_;
    const char* newline = std::find(begin, static_cast<const char*>(buffer_ + end_), '\n');
    line->append(begin, newline);
    begin_ = static_cast<size_t>(newline - buffer_);
    if (line->size() >= most) return false;
    if (begin_ == end_) continue;
    ++begin_;
    return true;
  }
  return false;
}

bool BufferedReader::Refill() {
  const ssize_t count = TEMP_FAILURE_RETRY(Receive(buffer_, sizeof buffer_));
  if (count < 0) throw Failure(Code::kInput, "cannot read " + name_, SystemError());
  begin_ = 0;
  end_ = static_cast<size_t>(count);
  return count > 0;
}

void WriteAll(int descriptor, const void* data, size_t size, const std::string& name) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = TEMP_FAILURE_RETRY(write(descriptor, bytes, size));
    if (count < 0) throw Failure(Code::kOutput, "cannot write " + name, SystemError());
    bytes += count;
    size -= static_cast<size_t>(count);
  }
}

void WriteFile(const std::string& path, const void* data, size_t size) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) throw Failure(Code::kOutput, "cannot write " + path, SystemError());
  WriteAll(file.get(), data, size, path);
}

void MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw Failure(Code::kOutput, "cannot make the folder " + path, error.message());
}

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

Package::Package(std::string folder)
    : folder_(std::move(folder)), root_(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!root_) throw Failure(Code::kPackage, "cannot open the package " + folder_, SystemError());
  struct stat state;
  const Descriptor file = OpenChecked(root_.get(), kManifestName, &state);
  if (state.st_size > kMaximumManifest) throw Failure(Code::kPackage, std::string(kManifestName) + " is too large");
  std::string text(static_cast<size_t>(state.st_size), '\0');
  ReadExactly(file.get(), text.data(), text.size(), kManifestName, Code::kPackage);
  manifest_ = ParseManifest(text);
}

Descriptor Package::Open(const Member& member) const {
  struct stat state;
  Descriptor file = OpenChecked(root_.get(), member.name, &state);
  const auto size = static_cast<uint64_t>(state.st_size);
  if (size != member.size) {
    throw Failure(Code::kPackage, member.name + " should have " + std::to_string(member.size) + " bytes",
                  "it has " + std::to_string(size));
  }
  return file;
}

void Package::Read(const std::string& name, void* data, size_t size) const {
  const Descriptor file = Open(manifest_.File(name));
  ReadExactly(file.get(), data, size, name, Code::kPackage);
}

std::string Package::LibraryPath() const {
  Open(manifest_.File(kLibraryName));
  return RealPath(folder_) + "/" + kLibraryName;
}

void Package::Verify(const Member& member) const {
  const Descriptor file = Open(member);
  constexpr size_t kBlock = 1 << 16;
  const auto block = std::make_unique<char[]>(kBlock);
  Sha256 digest;
  ssize_t count;
  while ((count = ReadSome(file.get(), block.get(), kBlock)) > 0)
    digest.Update(block.get(), static_cast<size_t>(count));
  if (count < 0) throw Failure(Code::kPackage, "cannot read " + member.name, SystemError());
  const std::string found = digest.Finish();
  if (found != member.sha256) {
    throw Failure(Code::kPackage, member.name + " has another content than the manifest says",
                  "its SHA-256 is " + found + " instead of " + member.sha256);
  }
}

}  // namespace agent
