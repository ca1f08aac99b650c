#include "served_network.h"

#include <cstring>
#include <memory>

#include "demo/outcome.h"
#include "demo/report.h"
#include "machine.h"
#include "protocol.h"
#include "subnormals.h"

namespace agent {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// The name of a release by its folder.
std::string NameOf(const std::string& folder) { return folder.substr(folder.rfind('/') + 1); }

}  // namespace

ServedNetwork::ServedNetwork(const std::string& model, int threads, EventLog* log)
    : log_(log),
      load_ms_(MillisecondsSinceStart()),
      network_(model, threads, [this](const std::string& release, const char* error) { Switched(release, error); }) {
  load_ms_ = MillisecondsSinceStart() - load_ms_;
  Describe();
}

Json ServedNetwork::Describing() {
  return Json::NewObject({{"model", network_.manifest().model},
                          {"release", release()},
                          {"threads", network_.model().threads()},
                          {"load_ms", load_ms_}});
}

Json ServedNetwork::Greeting() {
  const std::lock_guard<std::mutex> turn(turn_);
  const Model& model = network_.model();
  Json greeting = agent::Greeting(network_.manifest(), model.threads(), load_ms_, model.Device());
  return greeting.Set("release", release_);
}

std::string ServedNetwork::release() {
  const std::lock_guard<std::mutex> lock(described_);
  return release_;
}

void ServedNetwork::RequireDetector() {
  const std::lock_guard<std::mutex> turn(turn_);
  network_.detector();
}

template <typename Work>
void ServedNetwork::InTurn(const Work& work) {
  const std::lock_guard<std::mutex> turn(turn_);
  busy_since_ = std::chrono::duration_cast<milliseconds>(SteadyClock::now().time_since_epoch()).count();
  const std::shared_ptr<void> finally(nullptr, [this](void*) { busy_since_ = 0; });
  network_.Follow();
  work();
}

int64_t ServedNetwork::Run(int64_t entry, const void* values, int64_t bytes, void* memory, int64_t room, Json* reply) {
  int64_t written = 0;
  InTurn([&] {
    RequireInputBytes(SizesOf(entry).inputs, bytes);  // of another release by now, maybe
    network_.SetEntry(static_cast<size_t>(entry));
    const auto* each = static_cast<const char*>(values);
    for (size_t i = 0; i < network_.model().inputs().size(); ++i) {
      const size_t size = network_.model().inputs()[i].bytes;
      network_.SetInput(i, each, size);
      each += size;
    }
    const double before_ms = NowMs();
    network_.Infer();
    reply->Set("ms", NowMs() - before_ms).Set("release", release_);
    const std::vector<TensorSpec>& outputs = network_.model().outputs();
    written = BytesOf(outputs);
    if (written > room) throw Failure(Code::kInput, "the release in use has larger outputs");
    auto* target = static_cast<char*>(memory);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].bytes > 0) std::memcpy(target, network_.Output(i), outputs[i].bytes);
      target += outputs[i].bytes;
    }
  });
  return written;
}

void ServedNetwork::Detect(const CameraFrame& frame, Json* reply) {
  InTurn([&] {
    network_.SetEntry(0);
    const SubnormalsFlushed flushed;
    const double before_ms = NowMs();
    const std::vector<Detection> found = network_.detector().Detect(frame, network_.model());
    reply->Set("ms", NowMs() - before_ms).Set("release", release_);
    AddResults(found, reply);
  });
}

Json ServedNetwork::See(const Shot& shot, int number) {
  Json about;
  InTurn([&] {
    network_.SetEntry(0);
    const SubnormalsFlushed flushed;
    about = Described(Look(shot, number, network_.detector(), &network_.model(), 0), false);
    about.Set("release", release_);
  });
  return about;
}

void ServedNetwork::LookForRelease() {
  const std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
  if (turn) network_.Follow();
}

bool ServedNetwork::Hangs(milliseconds limit) const {
  const int64_t since = busy_since_.load();
  return since != 0 && SteadyClock::now().time_since_epoch() - milliseconds(since) > limit;
}

ServedNetwork::Sizes ServedNetwork::SizesOf(int64_t entry) {
  const std::lock_guard<std::mutex> lock(described_);
  if (entry < 0 || entry >= static_cast<int64_t>(sizes_.size())) {
    throw Failure(Code::kInput, "entry is out of range", "the release in use has " + std::to_string(sizes_.size()));
  }
  return sizes_[static_cast<size_t>(entry)];
}

void ServedNetwork::Describe() {
  const std::lock_guard<std::mutex> lock(described_);
  release_ = NameOf(network_.folder());
  sizes_.clear();
  for (const Entry& entry : network_.manifest().entries) {
    sizes_.push_back({BytesOf(entry.inputs), BytesOf(entry.outputs)});
  }
}

void ServedNetwork::Switched(const std::string& folder, const char* error) {
  if (error) {
    log_->Write("refused", Json::NewObject({{"release", NameOf(folder)}, {"error", error}}));
    return;
  }
  const std::string before = release_;
  Describe();
  log_->Write("switched", Json::NewObject({{"release", release_}, {"before", before}}));
}

}  // namespace agent
