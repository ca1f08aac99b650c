// A network's library, which a process loads once however many networks of it there are: they share code, weights and
// threads.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

namespace agent {

class SharedLibrary {
 public:
  // The library of a file, told by its device and inode; loaded unless it is there. Throws what TVM throws.
  static std::shared_ptr<SharedLibrary> Load(const std::string& path);

  const tvm::ffi::Module& module() const { return module_; }

  // How many threads compute, the calling one among them.
  int threads() const { return threads_; }
  // Takes another number when no inference runs.
  void SetThreads(int threads);

  // Held while an inference runs.
  std::shared_lock<std::shared_mutex> Use();

 private:
  explicit SharedLibrary(const std::string& path);

  tvm::ffi::Module module_;
  std::atomic<int> threads_{0};
  std::mutex turn_;  // whoever waits for the threads lets no new inference in
  std::shared_mutex busy_;
};

}  // namespace agent
