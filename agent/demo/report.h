// What `agent demo` writes to standard output: the log for people, or messages for programs.
#pragma once

#include <memory>
#include <string>

#include "demo/outcome.h"
#include "demo/source.h"
#include "manifest.h"

namespace agent {

// What is shown: several files are told apart from one, and from a camera.
enum class Kind { kImage, kImages, kCamera };

struct Showing {
  const Manifest& manifest;  // with its usage
  std::string package;       // where it lies
  Kind kind;
  std::string source;
  int threads;
  double load_ms;
  int repeat;  // inferences that were timed, of one image
};

class Report {
 public:
  virtual ~Report() = default;
  // All are Failure(kOutput) if nobody takes it.
  virtual void Begin() = 0;
  virtual void Add(const Outcome& outcome, const Picture& picture) = 0;
  virtual void End(const Summary& summary, bool interrupted) = 0;
};

// What a message says of an image, in a line of at most 65,536 bytes; with statistics of its inferences if it was
// measured.
Json Described(const Outcome& outcome, bool was_measured);
// Sets `results`, as many as such a line has room for, and `left_out`, how many others there are.
void AddResults(const std::vector<Detection>& detections, Json* json);
// As the camera gave it, or encoded. Failure(kInput) as of EncodeJpeg.
std::string JpegOf(const Picture& picture);

// The logs of Tengine's example programs with names of classes, line for line as edgedeploy/demo/tengine_log.py prints
// them in its style `named`. Failure(kInput) if the package asks for a log that is not known here.
std::unique_ptr<Report> LogReport(const Showing& showing);

// One line of JSON for each image, of at most 65,536 bytes; with `images` each is followed by the image as JPEG.
// Standard output is theirs alone from now on, and the process ends when its reader is gone.
std::unique_ptr<Report> MessageReport(const Showing& showing, bool images);

}  // namespace agent
