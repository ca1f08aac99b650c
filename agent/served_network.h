// The network of a service: clients and the camera take turns with it, and it follows its releases.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "demo/source.h"
#include "event_log.h"
#include "library/network.h"
#include "vision/formats.h"

namespace agent {

// All calls may be made from any thread.
class ServedNetwork {
 public:
  // Bytes of all inputs of an entry, and of all its outputs.
  struct Sizes {
    int64_t inputs;
    int64_t outputs;
  };

  // As Network; `log` is told of new releases.
  ServedNetwork(const std::string& model, int threads, EventLog* log);

  // What the log says when the service is ready.
  Json Describing();
  // What a client is told first.
  Json Greeting();
  std::string release();

  // Failure(kInput) if it is not one for images.
  void RequireDetector();
  // Failure(kInput) if the release in use has no such entry.
  Sizes SizesOf(int64_t entry);

  // Each is one inference, of the release that is in use when it begins, and adds its `ms` and `release` to a reply.

  // On the values of all inputs, one after another, of `bytes` bytes in all; those of the outputs are written to
  // `memory`, and how many bytes they have is returned. Failure(kInput) for another number of bytes, and if `room`
  // bytes are too few for the outputs.
  int64_t Run(int64_t entry, const void* values, int64_t bytes, void* memory, int64_t room, Json* reply);
  // On an image, with `results`.
  void Detect(const CameraFrame& frame, Json* reply);
  // On an image of the camera's: what a message says of it.
  Json See(const Shot& shot, int number);

  // Changes to a release that was pushed meanwhile, unless an inference is running, which looks by itself.
  void LookForRelease();
  // Whether an inference has been running for longer than that.
  bool Hangs(std::chrono::milliseconds limit) const;

 private:
  // One inference by the release that is in use, and all that is done with its results.
  template <typename Work>
  void InTurn(const Work& work);
  // Notes what is in use. Whoever calls has the turn, or is the only one.
  void Describe();
  void Switched(const std::string& folder, const char* error);

  EventLog* log_;
  double load_ms_;
  std::mutex turn_;  // whoever has it uses the network
  Network network_;
  std::atomic<int64_t> busy_since_{0};  // in milliseconds of the steady clock; 0: nobody infers

  std::mutex described_;  // of what follows, which is written by whoever has the turn
  std::string release_;
  std::vector<Sizes> sizes_;  // of each entry
};

}  // namespace agent
