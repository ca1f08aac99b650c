// A package's network as a detector: images in, results out, by what its manifest says of its use.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manifest.h"
#include "model.h"
#include "vision/formats.h"
#include "vision/frame.h"
#include "vision/image.h"
#include "vision/results.h"

namespace agent {

class Decoder;

class Detector {
 public:
  // Of one of the manifest's entries. Failure(kInput) if the package does not say how it is used, or in words that are
  // not known here, or the network does not take and give what that needs. The package itself can be run nevertheless.
  Detector(const Manifest& manifest, const Entry& entry);

  // Packages that were built for a camera take frames of its size and format, and refuse others with Failure(kInput);
  // other packages take all.

  // What the network, which is that of the entry, sees in a frame: the best first, as the package's demo decodes it.
  std::vector<Detection> Detect(const CameraFrame& frame, Model& model) const;

  // The same in parts, with `model.Run()` between them: the frame as the network's input, and outputs as results.
  Frame Prepare(const CameraFrame& frame, Model& model) const;
  std::vector<Detection> Decode(const Model& model, const Frame& frame) const;

  // And with memory of the caller's in the place of the network's, as large as the entry says.
  Frame Prepare(const CameraFrame& frame, void* input) const;
  std::vector<Detection> Decode(const std::vector<const void*>& outputs, const Frame& frame) const;

 private:
  std::optional<CameraFormat> camera_;
  std::optional<PixelFormat> pixels_;  // of the camera
  TensorSpec input_;
  std::vector<TensorSpec> outputs_;
  ImageInput colours_;
  Size size_;
  Fit fit_;
  std::shared_ptr<const Decoder> decoder_;
  std::vector<std::string> labels_;
  std::vector<std::string> names_;  // what the decoder calls the outputs
};

}  // namespace agent
