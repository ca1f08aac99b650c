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

// An image that lies where it is: see ed_image.
struct Image : ed_image {
  Image(const void* pixels, int width, int height, ed_format format = ED_BGR, std::size_t stride = 0)
      : ed_image{pixels, width, height, stride, format} {}
  // A cv::Mat of bytes: B G R, or grey if it has one channel.
  template <typename Mat, typename = decltype(std::declval<const Mat&>().elemSize1())>
  Image(const Mat& mat) : Image(mat.data, mat.cols, mat.rows, mat.channels() == 1 ? ED_GRAY : ED_BGR, mat.step[0]) {
    if (mat.dims != 2 || mat.elemSize1() != 1 || (mat.channels() != 1 && mat.channels() != 3)) {
      throw Error(ED_INPUT, "an image has one or three channels of bytes");
    }
  }
};

struct Point {
  float x;
  float y;
};

struct Box {
  float x1;
  float y1;
  float x2;
  float y2;
};

// One thing that a network sees in an image: see ed_detection.
struct Detection {
  std::string label;
  int class_id;
  float score;  // NaN where the network gives none
  bool has_box;
  Box box;                          // zeros if it has none
  std::vector<Point> corners;       // four, of a box that may be turned
  std::vector<Point> points;        // landmarks
  std::vector<float> point_scores;  // of each of them, or none
  std::vector<float> depths;        // of each of them, or none
  std::vector<std::int64_t> mask;   // lengths of runs
  std::vector<float> surface;       // a number for each pixel of the image, or none
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

  // Opens the release in use of a model and follows it as ed_follow does. What `switched` throws comes out of `run` and
  // `detect`.
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
    rethrow();
    check(status);
  }

  // One inference on an image: what the network sees in it, the best first, as ed_detect gives it.
  std::vector<Detection> detect(const Image& image) {
    const ed_detection* found = nullptr;
    std::size_t count = 0;
    const ed_status status = ed_detect(handle_, &image, &found, &count);
    rethrow();
    check(status);
    std::vector<Detection> all;
    for (std::size_t i = 0; i < count; ++i) {
      const ed_detection& each = found[i];
      const float* box = each.box;
      all.push_back({each.label, each.class_id, each.score, box != nullptr,
                     box ? Box{box[0], box[1], box[2], box[3]} : Box{}, points(each.corners, each.corners ? 4 : 0),
                     points(each.points, each.point_count), copied(each.point_scores, each.point_count),
                     copied(each.depths, each.point_count), copied(each.mask, each.mask_count),
                     copied(each.surface, static_cast<std::size_t>(image.width) * image.height)});
    }
    return all;
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

  // What was thrown while a new release was told.
  void rethrow() {
    if (watcher_ && watcher_->thrown) std::rethrow_exception(std::exchange(watcher_->thrown, nullptr));
  }

  template <typename T>
  static std::vector<T> copied(const T* values, std::size_t count) {
    return values ? std::vector<T>(values, values + count) : std::vector<T>();
  }
  static std::vector<Point> points(const float* values, std::size_t count) {
    std::vector<Point> all;
    for (std::size_t i = 0; values && i < count; ++i) all.push_back({values[2 * i], values[2 * i + 1]});
    return all;
  }

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
