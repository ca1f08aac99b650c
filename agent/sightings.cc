#include "sightings.h"

#include "demo/report.h"

namespace agent {

const std::string& Sighting::Jpeg() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (jpeg_.empty()) jpeg_ = JpegOf(picture_);
  return jpeg_;
}

void Sightings::Put(std::shared_ptr<const Sighting> sighting) {
  const std::lock_guard<std::mutex> lock(mutex_);
  newest_ = std::move(sighting);
  changed_.notify_all();
}

std::shared_ptr<const Sighting> Sightings::Next(const std::shared_ptr<const Sighting>& after) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || newest_ != after; });
  return ended_ ? nullptr : newest_;
}

void Sightings::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace agent
