// What a service's camera saw last, for all who watch. Whoever is slow misses some; nobody waits for them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "camera/camera.h"
#include "json.h"

namespace agent {

class Sighting {
 public:
  Sighting(Json about, Picture picture) : about_(std::move(about)), picture_(std::move(picture)) {}
  const Json& about() const { return about_; }
  // The image as JPEG, encoded for the first who asks. Failure(kInput) as of EncodeJpeg.
  const std::string& Jpeg() const;

 private:
  Json about_;
  Picture picture_;
  mutable std::mutex mutex_;
  mutable std::string jpeg_;
};

class Sightings {
 public:
  void Put(std::shared_ptr<const Sighting> sighting);
  // The newest, once it is another one than `after`; null at the end.
  std::shared_ptr<const Sighting> Next(const std::shared_ptr<const Sighting>& after);
  // No further one comes.
  void End();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const Sighting> newest_;
  bool ended_ = false;
};

}  // namespace agent
