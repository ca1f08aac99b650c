// What a demo makes of one image, and what many of them took.
#pragma once

#include <string>
#include <vector>

#include "demo/source.h"
#include "json.h"
#include "model.h"
#include "vision/detector.h"

namespace agent {

// How long each part of the way from a camera to results took, in milliseconds.
struct Parts {
  double capture_ms = 0;
  double preprocess_ms = 0;
  double inference_ms = 0;
  double postprocess_ms = 0;

  void Add(const Parts& other);
  Parts Per(int count) const;
  // In one line for people.
  std::string Line() const;
  // Adds them to an object, under their names.
  void Describe(Json* object) const;
};

struct Outcome {
  int number;        // of the image, from 0
  std::string file;  // or device
  Frame frame;
  Parts parts;
  std::vector<double> runs_ms;  // of the inferences that were timed, one at least
  std::vector<Detection> detections;
};

// Looks at an image: the first inference gives the results, and `repeat` more give the times; if there are no more, it
// stands for them. Failures as of Detector and Model.
Outcome Look(const Shot& shot, int number, const Detector& detector, Model* model, int repeat);

// Counts images and their times, from the moment it is made.
class Summary {
 public:
  Summary();
  void Add(const Outcome& outcome);
  int frames() const { return frames_; }
  std::string Line() const;
  Json Describe() const;

 private:
  double FramesPerSecond() const { return seconds_ > 0 ? frames_ / seconds_ : 0; }

  double started_ms_;
  double seconds_ = 0;
  int frames_ = 0;
  Parts sum_;
};

// A text as printf makes it.
__attribute__((format(printf, 1, 2))) std::string Text(const char* format, ...);

}  // namespace agent
