// Where the images of a demo come from: files, one after the other, or a camera.
#pragma once

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

class Source {
 public:
  virtual ~Source() = default;
  // The next image; nothing at the end, or if the process is asked to end. Failure(kInput) if it cannot be read.
  virtual std::optional<Shot> Next() = 0;
  // The file that was named first, or the camera.
  virtual const std::string& name() const = 0;
};

// Of several files those that cannot be read are passed over with a line on standard error, unless all are.
std::unique_ptr<Source> SourceOfFiles(std::vector<std::string> files, bool jpeg);
std::unique_ptr<Source> SourceOfCamera(std::unique_ptr<Camera> camera);

}  // namespace agent
