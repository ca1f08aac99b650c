// Files: read whole, written whole, and those of a package, which may be hostile. Releases that were pushed to this
// board (edgedeploy/release/layout.py).
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "failure.h"
#include "manifest.h"

namespace agent {

// A descriptor that is closed with its owner; -1 is none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int get() const { return number_; }
  // From now on somebody else closes it.
  void Release() { number_ = -1; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

// Bytes that come in pieces, as lines and by their number.
// Failure(kInput) if it cannot be read; messages call it `name`.
class BufferedReader {
 public:
  explicit BufferedReader(std::string name) : name_(std::move(name)) {}
  virtual ~BufferedReader() = default;
  // Exactly `size` bytes, to `data` or to nowhere; false if the input ends before.
  bool Fill(void* data, size_t size);
  // Appends a line without its newline; false if the input ends before that, or the line has `most` bytes or more.
  bool Line(std::string* line, size_t most);

 protected:
  // As read(2).
  virtual ssize_t Receive(void* data, size_t size) = 0;

 private:
  bool Refill();

  std::string name_;
  char buffer_[65536];
  size_t begin_ = 0;
  size_t end_ = 0;
};

// The ends of a new pipe: to read and to write. Failure(kOther) says `failure` if it cannot be created.
std::pair<Descriptor, Descriptor> Pipe(const std::string& failure = "cannot create a pipe");
// One call's worth of bytes, 0 at the end of the file, -1 for an error.
ssize_t ReadSome(int descriptor, void* data, size_t size);
// Reads exactly `size` bytes that are all there is, or throws Failure(code).
void ReadExactly(int descriptor, void* data, size_t size, const std::string& name, Code code);
void ReadFile(const std::string& path, void* data, size_t size, Code code);
// A small file of the system's, without white space at its end; empty if it cannot be read.
std::string ReadSystemFile(const std::string& path);
// Writes all bytes, or throws Failure(kOutput).
void WriteAll(int descriptor, const void* data, size_t size, const std::string& name);
void WriteFile(const std::string& path, const void* data, size_t size);
// Makes a folder and its parents.
void MakeFolder(const std::string& path);

// The path of what a caller calls a release: what has a slash in it is a path; another name is a model's, and stands
// for the link to its release in use. Failure(kUsage) if no model can be called so.
std::string PathOfRelease(const std::string& name);
// Where a path leads, without links. Failure(kPackage) if there is nothing.
std::string RealPath(const std::string& path);

// The folder that a package was unpacked into. All failures are Failure(kPackage).
class Package {
 public:
  explicit Package(std::string folder);
  const Manifest& manifest() const { return manifest_; }
  // A listed file, opened: a plain file of the stated size that no link leads to.
  Descriptor Open(const Member& member) const;
  // The content of a listed file that must have `size` bytes.
  void Read(const std::string& name, void* data, size_t size) const;
  // The network's library, as a path for the loader; absolute, so that no search path counts.
  std::string LibraryPath() const;
  // Refuses a listed file whose SHA-256 is another one.
  void Verify(const Member& member) const;

 private:
  std::string folder_;
  Descriptor root_;
  Manifest manifest_;
};

}  // namespace agent
