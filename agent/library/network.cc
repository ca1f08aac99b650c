#include "library/network.h"

#include <unistd.h>

#include <chrono>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "machine.h"
#include "subnormals.h"

namespace agent {
namespace {

// Where a link leads, as it says; Failure(kPackage) if it is none.
std::string TargetOf(const std::string& link) {
  char text[PATH_MAX];
  const ssize_t size = readlink(link.c_str(), text, sizeof text);
  if (size < 0) throw Failure(Code::kPackage, link + " is not a link to a release", SystemError());
  return {text, static_cast<size_t>(size)};
}

// The folder that a link with this target leads to: not by the link itself, which may lead elsewhere by now.
std::string FolderAt(const std::string& link, const std::string& target) {
  return target.front() == '/' ? target : link.substr(0, link.rfind('/') + 1) + target;
}

bool AreAlike(const TensorSpec& a, const TensorSpec& b) {
  return a.name == b.name && a.shape == b.shape && std::strcmp(a.type.name, b.type.name) == 0;
}

const TensorSpec& At(const std::vector<TensorSpec>& specs, size_t index, const char* what) {
  if (index < specs.size()) return specs[index];
  throw Failure(Code::kUsage, std::string("there is no ") + what + " " + std::to_string(index),
                "the network has " + std::to_string(specs.size()));
}

void RequireBytes(const TensorSpec& spec, size_t bytes) {
  if (bytes == spec.bytes) return;
  throw Failure(Code::kInput, "input '" + spec.name + "' has " + std::to_string(spec.bytes) + " bytes",
                std::to_string(bytes) + " were given");
}

// What points to a result's own memory.
ed_detection Shown(const Detection& found) {
  static_assert(sizeof(Point) == 2 * sizeof(float) && sizeof(Box) == 4 * sizeof(float));
  ed_detection shown{};
  shown.label = found.label.c_str();
  shown.class_id = static_cast<int32_t>(found.class_id);
  shown.score = found.score ? *found.score : std::nanf("");
  if (found.box) shown.box = &found.box->x1;
  if (found.corners) shown.corners = &found.corners->front().x;
  if (!found.points.empty()) shown.points = &found.points.front().x;
  if (!found.point_scores.empty()) shown.point_scores = found.point_scores.data();
  if (!found.depths.empty()) shown.depths = found.depths.data();
  shown.point_count = found.points.size();
  if (found.mask) {
    shown.mask = found.mask->counts.data();
    shown.mask_count = found.mask->counts.size();
  }
  if (found.surface) shown.surface = found.surface->values.data();
  return shown;
}

}  // namespace

Release::Release(const std::string& folder, int threads) : folder_(RealPath(folder)), package_(folder_) {
  const SubnormalsFlushed flushed;
  const Manifest& manifest = package_.manifest();
  detectors_.resize(manifest.entries.size());
  model_ = std::make_unique<Model>(package_, ChooseThreads(threads, manifest.threads));
}

const Detector& Release::DetectorOf(size_t entry) {
  const Manifest& manifest = package_.manifest();
  if (!detectors_[entry]) detectors_[entry] = std::make_unique<Detector>(manifest, manifest.entries[entry]);
  return *detectors_[entry];
}

Network::Network(const std::string& release, int threads)
    : threads_(threads), release_(std::make_unique<Release>(PathOfRelease(release), threads)) {}

Network::Network(const std::string& model, int threads, Switched switched)
    : threads_(threads), link_(PathOfRelease(model)), target_(TargetOf(link_)), switched_(std::move(switched)) {
  release_ = std::make_unique<Release>(FolderAt(link_, target_), threads);
}

Network::~Network() {
  if (next_.valid()) next_.wait();
  release_.reset();
  FreeUnusedMemory();
}

void Network::SetInput(size_t index, const void* values, size_t bytes) {
  const TensorSpec& spec = At(model().inputs(), index, "input");
  RequireBytes(spec, bytes);
  if (!values && bytes > 0) throw Failure(Code::kUsage, "the values of input '" + spec.name + "' are null");
  if (model().IsBound(index)) model().Bind(index, nullptr);
  if (bytes > 0) std::memcpy(model().Input(index), values, bytes);
}

void Network::BindInput(size_t index, const void* buffer, size_t bytes) {
  const TensorSpec& spec = At(model().inputs(), index, "input");
  if (buffer) RequireBytes(spec, bytes);
  if (reinterpret_cast<uintptr_t>(buffer) % ED_ALIGNMENT != 0) {
    throw Failure(Code::kUsage, "the buffer of input '" + spec.name + "' begins at no multiple of 64 bytes",
                  "allocate it with aligned_alloc or posix_memalign, or copy its values with ed_set_input");
  }
  model().Bind(index, const_cast<void*>(buffer));  // inferences only read it
}

void Network::SetEntry(size_t entry) {
  if (entry >= entries()) {
    throw Failure(Code::kUsage, "there is no entry " + std::to_string(entry),
                  "the package has " + std::to_string(entries()));
  }
  model().Enter(entry);
  entry_ = entry;
  has_outputs_ = false;
}

void Network::SetThreads(int threads) {
  if (threads < 1) throw Failure(Code::kUsage, std::to_string(threads) + " threads were asked for");
  model().SetThreads(ChooseThreads(threads, threads));
  threads_ = threads;
}

template <typename Work>
void Network::Turn(const Work& work) {
  if (running_) throw Failure(Code::kUsage, "an inference cannot be started while the network is being switched");
  running_ = true;
  const std::shared_ptr<void> finally(nullptr, [this](void*) { running_ = false; });
  Follow();
  Afresh(work);
}

template <typename Work>
void Network::Afresh(const Work& work) {
  has_outputs_ = false;
  shown_.clear();
  found_.clear();
  const SubnormalsFlushed flushed;
  work();
}

void Network::Run() {
  Turn([&] { Infer(); });
}

void Network::Infer() {
  Afresh([&] {
    model().Run();
    has_outputs_ = true;
  });
}

const std::vector<ed_detection>& Network::Detect(const CameraFrame& image) {
  Turn([&] {
    const Frame frame = detector().Prepare(image, model());
    model().Run();
    has_outputs_ = true;
    found_ = detector().Decode(model(), frame);
    for (const Detection& each : found_) shown_.push_back(Shown(each));
  });
  return shown_;
}

const void* Network::Output(size_t index) const {
  At(model().outputs(), index, "output");
  if (!has_outputs_) throw Failure(Code::kUsage, "there are no outputs yet", "ed_run makes them");
  return model().Output(index);
}

void Network::Follow() {
  if (link_.empty()) return;
  std::string target;
  try {
    target = TargetOf(link_);
    if (!next_.valid()) {
      if (target == target_) return;
      if (RealPath(FolderAt(link_, target)) == folder()) {  // it is back
        target_ = target;
        return;
      }
      next_ = std::async(std::launch::async, [folder = FolderAt(link_, target), threads = threads_] {
        return std::make_unique<Release>(folder, threads);
      });
      next_target_ = target;
    }
  } catch (const std::exception&) {
    return;  // the link is gone, or there is no thread: what is open stays in use, and the next inference looks again
  }
  if (next_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  std::string error;
  try {
    std::unique_ptr<Release> next = next_.get();
    if (target != next_target_) return;  // it leads elsewhere by now
    Switch(std::move(next));
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  target_ = next_target_;
  if (switched_) switched_(FolderAt(link_, target_), error.empty() ? nullptr : error.c_str());
}

void Network::Switch(std::unique_ptr<Release> next) {
  const size_t entry = entry_ < next->manifest().entries.size() ? entry_ : 0;
  Model& before = model();
  Model& after = next->model();
  after.Enter(entry);
  for (size_t i = 0; i < after.inputs().size(); ++i) {
    for (size_t j = 0; j < before.inputs().size(); ++j) {
      const TensorSpec& spec = after.inputs()[i];
      if (!AreAlike(spec, before.inputs()[j])) continue;
      if (before.IsBound(j)) {
        after.Bind(i, before.Input(j));
      } else if (spec.bytes > 0) {
        std::memcpy(after.Input(i), before.Input(j), spec.bytes);
      }
    }
  }
  release_ = std::move(next);
  entry_ = entry;
  has_outputs_ = false;
  FreeUnusedMemory();
}

}  // namespace agent
