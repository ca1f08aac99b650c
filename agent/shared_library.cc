#include "shared_library.h"

#include <sys/stat.h>
#include <tvm/ffi/function.h>

#include <map>
#include <utility>

#include "failure.h"

namespace agent {
namespace {

// The library's function that starts its threads (edgedeploy/compile/native/thread_pool.c).
constexpr const char* kSetThreads = "edgedeploy_set_threads";

using File = std::pair<dev_t, ino_t>;

// Never destroyed: networks may be closed while the process ends.
std::map<File, std::weak_ptr<SharedLibrary>>& Loaded() {
  static auto* const loaded = new std::map<File, std::weak_ptr<SharedLibrary>>;
  return *loaded;
}

}  // namespace

std::shared_ptr<SharedLibrary> SharedLibrary::Load(const std::string& path) {
  struct stat state;
  if (stat(path.c_str(), &state) != 0) throw Failure(Code::kPackage, "cannot open " + path, SystemError());
  static std::mutex loading;
  const std::lock_guard<std::mutex> lock(loading);
  std::weak_ptr<SharedLibrary>& known = Loaded()[{state.st_dev, state.st_ino}];
  std::shared_ptr<SharedLibrary> library = known.lock();
  if (!library) {
    library.reset(new SharedLibrary(path));
    known = library;
  }
  return library;
}

SharedLibrary::SharedLibrary(const std::string& path) : module_(tvm::ffi::Module::LoadFromFile(path)) {}

void SharedLibrary::SetThreads(int threads) {
  const std::lock_guard<std::mutex> turn(turn_);
  if (threads == threads_) return;
  const std::lock_guard<std::shared_mutex> idle(busy_);
  threads_ = module_->GetFunction(kSetThreads, true).value()(threads).cast<int>();
}

std::shared_lock<std::shared_mutex> SharedLibrary::Use() {
  const std::lock_guard<std::mutex> turn(turn_);
  return std::shared_lock<std::shared_mutex>(busy_);
}

}  // namespace agent
