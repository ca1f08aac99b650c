// detect IMAGE [RELEASE]: what a network sees in an image, a PPM or PGM. With OpenCV a cv::Mat is an image too:
// `network.detect(frame)`.
#include <cmath>
#include <cstdio>
#include <edgedeploy.hpp>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

const char* const kRelease = "retinaface";  // a model's release in use, or the path of a folder

struct Pixels {
  std::vector<char> bytes;
  int width;
  int height;
  bool grey;
};

Pixels read_image(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string kind;
  int width = 0, height = 0, most = 0;
  if (!(file >> kind >> width >> height >> most) || most != 255 || (kind != "P5" && kind != "P6")) {
    throw std::invalid_argument(path + " is not an image");
  }
  Pixels image{{}, width, height, kind == "P5"};
  image.bytes.resize(std::size_t(width) * height * (image.grey ? 1 : 3));
  if (!file.ignore(1).read(image.bytes.data(), image.bytes.size())) throw std::invalid_argument(path + " is cut off");
  return image;
}

void print(const edgedeploy::Detection& found) {
  std::printf("%s", found.label.c_str());
  if (!std::isnan(found.score)) std::printf(" %.6f", found.score);
  if (found.has_box) std::printf(" [%.2f %.2f %.2f %.2f]", found.box.x1, found.box.y1, found.box.x2, found.box.y2);
  for (const auto& point : found.points) std::printf(" (%.2f %.2f)", point.x, point.y);
  std::printf("\n");
}

int main(int count, char** words) try {
  if (count < 2 || count > 3) throw std::invalid_argument("usage: detect IMAGE [RELEASE]");
  edgedeploy::Network network(count > 2 ? words[2] : kRelease);
  const Pixels image = read_image(words[1]);
  const ed_format format = image.grey ? ED_GRAY : ED_RGB;
  for (const auto& found : network.detect({image.bytes.data(), image.width, image.height, format})) print(found);
} catch (const std::exception& error) {
  std::cerr << "detect: " << error.what() << std::endl;
  return 1;
}
