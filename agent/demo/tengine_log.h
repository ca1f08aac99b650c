// The logs of Tengine's example programs with names of classes, line for line as edgedeploy/demo/tengine_log.py prints
// them in its style `named`.
#pragma once

#include <string>

#include "demo/outcome.h"
#include "manifest.h"

namespace agent {

class TengineLog {
 public:
  // Of the network of a package that lies at `file`. Failure(kInput) if the package asks for a log that is not known
  // here.
  TengineLog(const Manifest& manifest, std::string file, int threads);

  // The lines of one image.
  std::string OfImage(const Outcome& outcome) const;
  // The lines before those of several images or a camera's, of one of these, and after them.
  std::string Head(const std::string& source) const;
  std::string OfFrame(const std::string& name, const Outcome& outcome) const;
  std::string Tail() const;

 private:
  std::string TimeLine(const Outcome& outcome) const;
  std::string Results(const std::vector<Detection>& detections) const;

  const Manifest& manifest_;
  const std::string& log_;
  std::string file_;
  int threads_;
};

}  // namespace agent
