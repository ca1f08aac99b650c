// What a service's camera saw last, for all who watch. Whoever is slow misses some; nobody waits for them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "demo/report.h"
#include "json.h"

namespace agent {

class Sighting {
 public:
  Sighting(Json about, Picture picture) : about_(std::move(about)), picture_(std::move(picture)) {}
  const Json& about() const { return about_; }
  // The image as JPEG, encoded for the first who asks. Failure(kInput) as of EncodeJpeg.
  const std::string& Jpeg() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (jpeg_.empty()) jpeg_ = JpegOf(picture_);
    return jpeg_;
  }

 private:
  Json about_;
  Picture picture_;
  mutable std::mutex mutex_;
  mutable std::string jpeg_;
};

class Sightings {
 public:
  void Put(std::shared_ptr<const Sighting> sighting) {
    const std::lock_guard<std::mutex> lock(mutex_);
    newest_ = std::move(sighting);
    changed_.notify_all();
  }
  // The newest, once it is another one than `after`; null at the end.
  std::shared_ptr<const Sighting> Next(const std::shared_ptr<const Sighting>& after) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || newest_ != after; });
    return ended_ ? nullptr : newest_;
  }
  // No further one comes.
  void End() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const Sighting> newest_;
  bool ended_ = false;
};

}  // namespace agent
