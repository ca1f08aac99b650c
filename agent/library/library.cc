// The library's calls: arguments are checked here, and nothing is thrown beyond.

#include <cstdio>
#include <new>
#include <unordered_map>

#include "library/edgedeploy.h"
#include "library/network.h"
#include "version.h"
#include "vision/formats.h"

namespace agent {
namespace {

static_assert(ED_FAILED == static_cast<int>(Code::kOther) && ED_MISUSED == static_cast<int>(Code::kUsage));
static_assert(ED_INPUT == static_cast<int>(Code::kInput) && ED_PACKAGE == static_cast<int>(Code::kPackage));
static_assert(ED_BGR == static_cast<int>(PixelFormat::kBgr) && ED_RGB == static_cast<int>(PixelFormat::kRgb));
static_assert(ED_GRAY == static_cast<int>(PixelFormat::kGrey) && ED_I420 == static_cast<int>(PixelFormat::kI420));
static_assert(ED_NV12 == static_cast<int>(PixelFormat::kNv12) && ED_YUYV == static_cast<int>(PixelFormat::kYuyv));
static_assert(ED_DEVICE == static_cast<int>(Code::kDevice) && ED_INTERNAL == static_cast<int>(Code::kInternal));

// Of a fixed size, so that it can be told that there is no memory.
thread_local char last_error[2048];

ed_status Failed(int status, const char* what) {
  std::snprintf(last_error, sizeof last_error, "%s", what);
  return status;
}

template <typename Work>
ed_status Guarded(const Work& work) noexcept {
  try {
    work();
    return ED_OK;
  } catch (const Failure& failure) {
    return Failed(static_cast<int>(failure.code()), failure.what());
  } catch (const std::bad_alloc&) {
    return Failed(ED_FAILED, "there is not enough memory");
  } catch (const std::exception& error) {
    return Failed(ED_INTERNAL, error.what());
  } catch (...) {
    return Failed(ED_INTERNAL, "an unknown exception was thrown");
  }
}

void Require(const void* pointer, const char* name) {
  if (!pointer) throw Failure(Code::kUsage, std::string(name) + " is null");
}

// All open networks. A handle is a number, which is never given twice: what was closed, or never was open, is known
// as that.
class Handles {
 public:
  ed_network* Add(std::shared_ptr<Network> network) {
    const std::lock_guard<std::mutex> lock(mutex_);
    networks_.emplace(++last_, std::move(network));
    return reinterpret_cast<ed_network*>(last_);
  }
  std::shared_ptr<Network> Find(ed_network* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = networks_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == networks_.end()) throw Failure(Code::kUsage, "the network is not open");
    return found->second;
  }
  // The last one who has the network ends it, without the lock.
  std::shared_ptr<Network> Remove(ed_network* handle) {
    std::shared_ptr<Network> network = Find(handle);
    const std::lock_guard<std::mutex> lock(mutex_);
    networks_.erase(reinterpret_cast<uintptr_t>(handle));
    return network;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uintptr_t, std::shared_ptr<Network>> networks_;
  uintptr_t last_ = 0;
};

// Never destroyed: networks may be in use while the process ends.
Handles& Open() {
  static auto* const open = new Handles;
  return *open;
}

// Work on a network that nobody else works on meanwhile.
template <typename Work>
ed_status With(ed_network* handle, const Work& work) noexcept {
  return Guarded([&] {
    const std::shared_ptr<Network> network = Open().Find(handle);
    const auto lock = network->Lock();
    work(*network);
  });
}

// What `work` says of a network; `otherwise` if it is not open.
template <typename Value, typename Work>
Value Asked(ed_network* handle, Value otherwise, const Work& work) noexcept {
  With(handle, [&](Network& network) { otherwise = work(network); });
  return otherwise;
}

// NCHW or NHWC where only one of them has the channels of an image, 1, 3 or 4; else empty.
const char* LayoutOf(const std::vector<int64_t>& shape) {
  const auto are_channels = [](int64_t size) { return size == 1 || size == 3 || size == 4; };
  if (shape.size() != 4 || are_channels(shape[1]) == are_channels(shape[3])) return "";
  return are_channels(shape[1]) ? "NCHW" : "NHWC";
}

void Describe(const std::vector<TensorSpec>& specs, size_t index, ed_tensor* tensor) {
  Require(tensor, "tensor");
  *tensor = {};
  if (index >= specs.size()) {
    throw Failure(Code::kUsage, "there is no tensor " + std::to_string(index),
                  "there are " + std::to_string(specs.size()));
  }
  const TensorSpec& spec = specs[index];
  *tensor = {spec.name.c_str(), spec.type.name, LayoutOf(spec.shape), spec.shape.data(), spec.shape.size(), spec.bytes};
}

void RequireThreads(int32_t threads) {
  if (threads < 0) throw Failure(Code::kUsage, std::to_string(threads) + " threads were asked for");
}

CameraFrame FrameOfImage(const ed_image& image) {
  if (image.format < ED_BGR || image.format > ED_YUYV) {
    throw Failure(Code::kUsage, "there is no format " + std::to_string(image.format) + " of images");
  }
  return {static_cast<const uint8_t*>(image.pixels), image.height, image.width, image.stride,
          static_cast<PixelFormat>(image.format)};
}

}  // namespace
}  // namespace agent

using agent::Asked;
using agent::Guarded;
using agent::Network;
using agent::Open;
using agent::With;

const char* ed_version(void) { return agent::VersionText(); }

const char* ed_error(void) { return agent::last_error; }

ed_status ed_open(const char* release, int32_t threads, ed_network** network) {
  return Guarded([&] {
    agent::Require(network, "network");
    *network = nullptr;
    agent::Require(release, "release");
    agent::RequireThreads(threads);
    *network = Open().Add(std::make_shared<Network>(release, threads));
  });
}

ed_status ed_follow(const char* model, int32_t threads, ed_switched switched, void* context, ed_network** network) {
  return Guarded([&] {
    agent::Require(network, "network");
    *network = nullptr;
    agent::Require(model, "model");
    agent::RequireThreads(threads);
    const auto handle = std::make_shared<ed_network*>();  // which is known when there is a network
    Network::Switched tell;
    if (switched) {
      tell = [=](const std::string& release, const char* error) { switched(*handle, release.c_str(), error, context); };
    }
    *network = *handle = Open().Add(std::make_shared<Network>(model, threads, tell));
  });
}

ed_status ed_close(ed_network* network) {
  if (!network) return ED_OK;
  return Guarded([&] {
    const std::shared_ptr<Network> closed = Open().Remove(network);
    const auto lock = closed->Lock();  // until others are done with it
  });
}

const char* ed_release(ed_network* network) {
  return Asked<const char*>(network, nullptr, [](Network& each) { return each.folder().c_str(); });
}

size_t ed_input_count(ed_network* network) {
  return Asked<size_t>(network, 0, [](Network& each) { return each.model().inputs().size(); });
}

size_t ed_output_count(ed_network* network) {
  return Asked<size_t>(network, 0, [](Network& each) { return each.model().outputs().size(); });
}

ed_status ed_describe_input(ed_network* network, size_t index, ed_tensor* tensor) {
  return With(network, [&](Network& each) { agent::Describe(each.model().inputs(), index, tensor); });
}

ed_status ed_describe_output(ed_network* network, size_t index, ed_tensor* tensor) {
  return With(network, [&](Network& each) { agent::Describe(each.model().outputs(), index, tensor); });
}

ed_status ed_set_input(ed_network* network, size_t index, const void* values, size_t bytes) {
  return With(network, [&](Network& each) { each.SetInput(index, values, bytes); });
}

ed_status ed_bind_input(ed_network* network, size_t index, const void* buffer, size_t bytes) {
  return With(network, [&](Network& each) { each.BindInput(index, buffer, bytes); });
}

ed_status ed_run(ed_network* network) {
  return With(network, [](Network& each) { each.Run(); });
}

ed_status ed_get_output(ed_network* network, size_t index, const void** values) {
  return With(network, [&](Network& each) {
    agent::Require(values, "values");
    *values = nullptr;
    *values = each.Output(index);
  });
}

int32_t ed_threads(ed_network* network) {
  return Asked<int32_t>(network, 0, [](Network& each) { return each.model().threads(); });
}

ed_status ed_set_threads(ed_network* network, int32_t threads) {
  return With(network, [&](Network& each) { each.SetThreads(threads); });
}

size_t ed_entry_count(ed_network* network) {
  return Asked<size_t>(network, 0, [](Network& each) { return each.entries(); });
}

ed_status ed_set_entry(ed_network* network, size_t entry) {
  return With(network, [&](Network& each) { each.SetEntry(entry); });
}

ed_status ed_detect(ed_network* network, const ed_image* image, const ed_detection** found, size_t* count) {
  return With(network, [&](Network& each) {
    agent::Require(found, "found");
    agent::Require(count, "count");
    *found = nullptr;
    *count = 0;
    agent::Require(image, "image");
    const std::vector<ed_detection>& shown = each.Detect(agent::FrameOfImage(*image));
    *count = shown.size();
    *found = shown.empty() ? nullptr : shown.data();
  });
}
