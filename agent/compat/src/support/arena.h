// Memory that is handed out in pieces and given back all at once.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace tvm {
namespace support {

class Arena {
 public:
  // Room for `count` objects of a type that needs no destructor.
  template <typename T>
  T* allocate_(int count = 1) {
    const size_t units = sizeof(T) * static_cast<size_t>(count) / sizeof(std::max_align_t) + 1;
    pieces_.emplace_back(new std::max_align_t[units]);
    return reinterpret_cast<T*>(pieces_.back().get());
  }
  void RecycleAll() { pieces_.clear(); }

 private:
  std::vector<std::unique_ptr<std::max_align_t[]>> pieces_;
};

}  // namespace support
}  // namespace tvm
