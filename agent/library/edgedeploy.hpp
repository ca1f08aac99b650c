// The same as edgedeploy.h for C++14 and later: networks close themselves, and what goes wrong is thrown.
#ifndef EDGEDEPLOY_HPP_
#define EDGEDEPLOY_HPP_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "edgedeploy.h"

namespace edgedeploy {

// What went wrong; `status` is one of edgedeploy.h's.
class Error : public std::runtime_error {
 public:
  Error(ed_status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  ed_status status() const { return status_; }

 private:
  ed_status status_;
};

inline void check(ed_status status) {
  if (status != ED_OK) throw Error(status, ed_error());
}

// An input or an output.
struct Tensor {
  std::string name;
  std::string dtype;   // as numpy names it
  std::string layout;  // NCHW, NHWC, or empty
  std::vector<std::int64_t> shape;
  std::size_t bytes;
};

// Values that belong to a network.
template <typename T>
class Values {
 public:
  Values(const T* data, std::size_t size) : data_(data), size_(size) {}
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T& operator[](std::size_t index) const { return data_[index]; }

 private:
  const T* data_;
  std::size_t size_;
};

// numpy's name of a type of C++.
template <typename T>
std::string dtype_of() {
  static_assert(std::is_arithmetic<T>::value, "values are numbers");
  if (std::is_same<T, bool>::value) return "bool";
  const std::string kind = std::is_floating_point<T>::value ? "float" : std::is_signed<T>::value ? "int" : "uint";
  return kind + std::to_string(8 * sizeof(T));
}

class Network {
 public:
  // Opens a network as ed_open does.
  explicit Network(const std::string& release, int threads = 0) { check(ed_open(release.c_str(), threads, &handle_)); }

  // Told of a new release: its folder, and why it cannot be used; that is empty if it is in use now.
  using Switched = std::function<void(const std::string& release, const std::string& error)>;

  // Opens the release in use of a model and follows it as ed_follow does. What `switched` throws comes out of `run`.
  static Network follow(const std::string& model, Switched switched = nullptr, int threads = 0) {
    Network network;
    network.watcher_.reset(new Watcher{std::move(switched), nullptr});
    check(ed_follow(model.c_str(), threads, &Watcher::tell, network.watcher_.get(), &network.handle_));
    return network;
  }

  Network(Network&& other) noexcept : watcher_(std::move(other.watcher_)), handle_(other.handle_) {
    other.handle_ = nullptr;
  }
  Network& operator=(Network&& other) noexcept {
    std::swap(watcher_, other.watcher_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Network() { ed_close(handle_); }

  // For what is not here: it stays this object's.
  ed_network* handle() const { return handle_; }

  std::vector<Tensor> inputs() const { return described(ed_input_count(handle_), ed_describe_input); }
  std::vector<Tensor> outputs() const { return described(ed_output_count(handle_), ed_describe_output); }
  std::string release() const {
    const char* folder = ed_release(handle_);
    return folder ? folder : "";
  }

  int threads() const { return ed_threads(handle_); }
  void set_threads(int threads) { check(ed_set_threads(handle_, threads)); }
  std::size_t entries() const { return ed_entry_count(handle_); }
  void set_entry(std::size_t entry) { check(ed_set_entry(handle_, entry)); }

  // Copies the values of an input, whose type has to be the input's.
  template <typename T>
  void set_input(std::size_t index, const T* values, std::size_t count) {
    require_dtype<T>(index, ed_describe_input);
    check(ed_set_input(handle_, index, values, count * sizeof(T)));
  }
  template <typename T>
  void set_input(std::size_t index, const std::vector<T>& values) {
    set_input(index, values.data(), values.size());
  }
  // Has inferences read an input from a buffer of the caller's, as ed_bind_input does.
  template <typename T>
  void bind_input(std::size_t index, const T* buffer, std::size_t count) {
    require_dtype<T>(index, ed_describe_input);
    check(ed_bind_input(handle_, index, buffer, count * sizeof(T)));
  }

  // One inference.
  void run() {
    const ed_status status = ed_run(handle_);
    if (watcher_ && watcher_->thrown) std::rethrow_exception(std::exchange(watcher_->thrown, nullptr));
    check(status);
  }

  // The values of an output, which are there until the next inference.
  template <typename T>
  Values<T> output(std::size_t index) const {
    const std::size_t bytes = require_dtype<T>(index, ed_describe_output);
    const void* values = nullptr;
    check(ed_get_output(handle_, index, &values));
    return {static_cast<const T*>(values), bytes / sizeof(T)};
  }

 private:
  struct Watcher {
    Switched switched;
    std::exception_ptr thrown;

    static void tell(ed_network*, const char* release, const char* error, void* context) {
      auto* watcher = static_cast<Watcher*>(context);
      try {
        if (watcher->switched) watcher->switched(release, error ? error : "");
      } catch (...) {
        watcher->thrown = std::current_exception();
      }
    }
  };
  using Describe = ed_status (*)(ed_network*, std::size_t, ed_tensor*);

  Network() = default;

  std::vector<Tensor> described(std::size_t count, Describe describe) const {
    std::vector<Tensor> all;
    for (std::size_t i = 0; i < count; ++i) {
      ed_tensor each;
      check(describe(handle_, i, &each));
      all.push_back({each.name, each.dtype, each.layout, {each.shape, each.shape + each.rank}, each.bytes});
    }
    return all;
  }

  // How many bytes a tensor has; an Error if its type is another one.
  template <typename T>
  std::size_t require_dtype(std::size_t index, Describe describe) const {
    ed_tensor tensor;
    check(describe(handle_, index, &tensor));
    if (dtype_of<T>() != tensor.dtype) {
      throw Error(ED_INPUT, std::string("'") + tensor.name + "' is of " + tensor.dtype + ", not of " + dtype_of<T>());
    }
    return tensor.bytes;
  }

  std::unique_ptr<Watcher> watcher_;  // at one place, which the library knows
  ed_network* handle_ = nullptr;
};

}  // namespace edgedeploy

#endif  // EDGEDEPLOY_HPP_
