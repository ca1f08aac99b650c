#include "usage.h"

#include "fields.h"

namespace agent {

void ReadFields(Fields& fields, ImageInput* input) {
  fields.Skip({"name", "kind"});
  fields.Read("layout", &input->layout);
  fields.Read("colour", &input->colour);
  fields.Read("mean", &input->mean);
  fields.Read("scale", &input->scale);
  const size_t channels = input->colour == "GRAY" ? 1 : 3;
  if (input->mean.size() != channels || input->scale.size() != channels) {
    throw JsonError("mean and scale need " + std::to_string(channels) + " values each");
  }
  fields.Require("shape", &input->shape, kCount);
}

void ReadFields(Fields& fields, CameraFormat* camera) {
  fields.Require("width", &camera->width, Limits{1, kLongestSide});
  fields.Require("height", &camera->height, Limits{1, kLongestSide});
  fields.Require("pixels", &camera->pixels);
}

void ReadFields(Fields& fields, Usage* usage) {
  Json fit;
  fields.Require("demo", &usage->demo);
  fields.Read("stage", &usage->stage, kCount);
  fields.Require("input", &usage->input);
  fields.Require("fit", &fit);
  fields.Require("decoder", &usage->decoder);
  fields.Require("log", &usage->log);
  fields.Read("outputs", &usage->outputs);
  fields.Read("labels", &usage->labels);
  fields.Read("camera", &usage->camera);
  usage->fit = fit.is_object() ? fit.at("kind").text() : fit.text();
  usage->decoder.at("kind").text();  // there must be one
}

void ReadFields(Fields& fields, Head* head) {
  fields.Require("output", &head->output);
  fields.Read("kind", &head->region, OneOf{"yolo", "region"});
  fields.Require("anchors", &head->anchors, OneOrMore(kPositive));
  fields.Read("classes", &head->classes, kCount);
  fields.Read("scale_x_y", &head->scale_x_y, kPositive);
}

}  // namespace agent
