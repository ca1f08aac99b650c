// Where the images of a demo come from: files, one after the other, or a camera.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "camera/camera.h"

namespace agent {

struct Shot {
  std::string file;  // or device
  Picture picture;   // its `jpeg` is there if it was wanted, and the file or the camera gave one
  double capture_ms;
};

// Gives the next image; nothing at the end, or if the process is asked to end. Failure(kInput) if it cannot be read.
using Source = std::function<std::optional<Shot>()>;

// Of several files those that cannot be read are passed over with a line on standard error, unless all are.
Source SourceOfFiles(std::vector<std::string> files, bool jpeg);
Source SourceOfCamera(std::shared_ptr<Camera> camera);

}  // namespace agent
