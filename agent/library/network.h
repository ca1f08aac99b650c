// What is behind a handle of the library: a release that is open, and the one that may follow it.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "library/edgedeploy.h"
#include "model.h"
#include "vision/detector.h"

namespace agent {

// A release whose library is loaded.
class Release {
 public:
  // `threads` as ChooseThreads takes them. Failure(kPackage) and others as Package and Model throw them.
  Release(const std::string& folder, int threads);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return package_.manifest(); }
  Model& model() { return *model_; }
  // Failure(kInput) as Detector throws it.
  const Detector& DetectorOf(size_t entry);

 private:
  std::string folder_;
  Package package_;
  std::unique_ptr<Model> model_;
  std::vector<std::unique_ptr<Detector>> detectors_;  // those that were used
};

// Calls may come from any thread; whoever makes several that belong together holds `Lock()`.
class Network {
 public:
  // A release in use, or a folder, as ed_open has it.
  Network(const std::string& release, int threads);
  // The release that a link leads to, and those it will lead to, as ed_follow has it. `switched` is told of each: its
  // folder, and why it cannot be used, or null.
  using Switched = std::function<void(const std::string& release, const char* error)>;
  Network(const std::string& model, int threads, Switched switched);
  ~Network();

  std::unique_lock<std::recursive_mutex> Lock() { return std::unique_lock<std::recursive_mutex>(mutex_); }

  const std::string& folder() const { return release_->folder(); }
  const Model& model() const { return release_->model(); }
  Model& model() { return release_->model(); }
  const Manifest& manifest() const { return release_->manifest(); }
  size_t entries() const { return manifest().entries.size(); }
  // Of the entry that is in use. Failure(kInput) as Detector throws it.
  const Detector& detector() { return release_->DetectorOf(entry_); }

  // Failure(kUsage) for an index or a buffer that cannot be meant, Failure(kInput) for another number of bytes.
  void SetInput(size_t index, const void* values, size_t bytes);
  void BindInput(size_t index, const void* buffer, size_t bytes);
  void SetEntry(size_t entry);
  void SetThreads(int threads);

  // Follows, and infers.
  void Run();
  // Looks where the link leads: loads what is there, and changes to it when that is done. Networks without one stay.
  void Follow();
  void Infer();
  // Failure(kUsage) before the first inference.
  const void* Output(size_t index) const;
  // An inference on an image, and its results, which stay until the next inference. Failures as of Detector.
  const std::vector<ed_detection>& Detect(const CameraFrame& image);

 private:
  // Work with one inference in it, by the release that is in use then.
  template <typename Work>
  void Turn(const Work& work);
  // The same by the release that is open, without the outputs of before.
  template <typename Work>
  void Afresh(const Work& work);
  void Switch(std::unique_ptr<Release> next);

  std::recursive_mutex mutex_;
  int threads_;  // as they were asked for
  std::unique_ptr<Release> release_;
  size_t entry_ = 0;
  bool running_ = false;
  bool has_outputs_ = false;
  std::vector<Detection> found_;
  std::vector<ed_detection> shown_;  // the same for callers, who are pointed to it

  // Of networks that follow: the link, where it led to what was last used or refused, and what is being loaded.
  std::string link_;
  std::string target_;
  std::string next_target_;
  std::future<std::unique_ptr<Release>> next_;
  Switched switched_;
};

}  // namespace agent
