// What all decoders share: a decoder is made from the parameters that a package states, and reads outputs as results.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manifest.h"
#include "vision/candidates.h"
#include "vision/frame.h"
#include "vision/outputs.h"
#include "vision/parameters.h"

namespace agent {

using Labels = std::vector<std::string>;

// A class's name, or its number if `labels` does not reach that far.
std::string LabelOf(const Labels& labels, int64_t class_id);

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Failure(kInput) if the outputs are not those of a network of this kind.
  virtual std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const = 0;
};

// What a decoder becomes for one network.
struct Fitted {
  std::unique_ptr<Decoder> decoder;
  std::optional<Fit> fit;      // how images are brought to the network's size, if that goes before what is stated
  Labels labels;               // names of classes that the network says itself
  bool has_own_names = false;  // whether the decoder calls outputs as the network does
};

// What a network says of itself.
struct Described {
  const std::vector<Head>& heads;
  const std::vector<std::pair<std::string, std::string>>& metadata;
  const std::vector<TensorSpec>& outputs;
};

// The decoder that a package states, which has an object with a kind and its parameters. Failure(kInput) if it is not
// known here, or does not suit the network.
Fitted MakeDecoder(const Json& stated, const Described& network);

// Those of each kind; JsonError for parameters that it does not have.
Fitted MakeBlaze(Parameters& parameters, const Described& network);
Fitted MakeClassification(Parameters& parameters, const Described& network);
Fitted MakeDepth(Parameters& parameters, const Described& network);
Fitted MakeEfficientDet(Parameters& parameters, const Described& network);
Fitted MakeLandmark(Parameters& parameters, const Described& network);
Fitted MakeLandmarks(Parameters& parameters, const Described& network);
Fitted MakeNanoDet(Parameters& parameters, const Described& network);
Fitted MakeRetinaFace(Parameters& parameters, const Described& network);
Fitted MakeSegmentation(Parameters& parameters, const Described& network);
Fitted MakeSsd(Parameters& parameters, const Described& network);
Fitted MakeTextLine(Parameters& parameters, const Described& network);
Fitted MakeTextRegions(Parameters& parameters, const Described& network);
Fitted MakeUltralytics(Parameters& parameters, const Described& network);
Fitted MakeYolo(Parameters& parameters, const Described& network);
Fitted MakeYolox(Parameters& parameters, const Described& network);
Fitted MakeYuNet(Parameters& parameters, const Described& network);

// Base of the decoders whose results are boxes.
class BoxDecoder : public Decoder {
 public:
  std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const override;

 protected:
  struct Defaults {
    double threshold;
    double iou_threshold;
    bool clip = true;
  };
  BoxDecoder(Parameters& parameters, const Defaults& defaults);
  BoxDecoder(float threshold, const Suppression& suppression, size_t candidates)
      : threshold_(threshold), suppression_(suppression), candidates_(candidates) {}

  // All places whose score `Reaches`.
  virtual Candidates Find(const Outputs& outputs, const Frame& frame) const = 0;
  // Of those that overlap, the best one.
  virtual Candidates Reduced(const Candidates& found) const { return found.Chosen(Suppressed(found, suppression_)); }
  // What is reported of them.
  virtual std::vector<Detection> Results(const Candidates& found, const Outputs& outputs, const Frame& frame,
                                         const Labels& labels) const;

  bool Reaches(float score) const { return score >= threshold_; }
  const Suppression& suppression() const { return suppression_; }
  // For decoders of several classes, which can be told to suppress within each.
  void ReadSuppression(Parameters& parameters);
  // What classes are called where there are no labels.
  void SetNames(Labels names) { names_ = std::move(names); }

 private:
  Candidates Sound(const Candidates& found) const;

  float threshold_;
  Suppression suppression_{};
  size_t candidates_;
  bool clip_ = true;
  Labels names_;
};

// The best of some values and which it is; NaN if one of them is that, as numpy has it.
struct Best {
  float value;
  int64_t index;
};
Best BestOf(const float* values, int64_t count, int64_t step = 1);

// 1 / (1 + exp(-x)), written so that no large x overflows.
float Sigmoid(float x);
double Sigmoid(double x);
// exp(x) for sizes of boxes; it ends where a box is larger than any image.
float Exponential(float x);

// Rows and columns of a level whose convolutions pad: a part of a cell at the right and bottom is one.
Size GridSize(Size network, int64_t stride);
int64_t CellCount(Size network, const std::vector<int64_t>& strides);

// Column and row of each cell of all levels, level after level, row by row, and the level's number.
template <typename Visit>
void EachCell(Size network, const std::vector<int64_t>& strides, const Visit& visit) {
  int64_t place = 0;
  for (size_t level = 0; level < strides.size(); ++level) {
    const Size grid = GridSize(network, strides[level]);
    for (int row = 0; row < grid.height; ++row) {
      for (int column = 0; column < grid.width; ++column) {
        visit(place++, static_cast<float>(column), static_cast<float>(row), level);
      }
    }
  }
}

}  // namespace agent
