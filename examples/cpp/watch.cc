// watch WIDTH HEIGHT [MODEL]: what a network sees in each frame of a camera, by the release that is in use at that
// moment. Frames come on standard input, as rpicam-vid and ffmpeg give them:
//
//   rpicam-vid -t 0 -n --width 640 --height 480 --codec yuv420 -o - | ./watch 640 480
//   ffmpeg -f v4l2 -video_size 640x480 -i /dev/video0 -f rawvideo -pix_fmt yuv420p - | ./watch 640 480
#include <cmath>
#include <cstdio>
#include <edgedeploy.hpp>
#include <iostream>
#include <string>
#include <vector>

const char* const kModel = "retinaface";  // a model, whose release in use is followed, or the path of such a link

void print(const edgedeploy::Detection& found, const char* before) {
  std::printf("%s%s", before, found.label.c_str());
  if (!std::isnan(found.score)) std::printf(" %.6f", found.score);
  if (found.has_box) std::printf(" [%.2f %.2f %.2f %.2f]", found.box.x1, found.box.y1, found.box.x2, found.box.y2);
}

int main(int count, char** words) try {
  if (count < 3 || count > 4) throw std::invalid_argument("usage: watch WIDTH HEIGHT [MODEL]");
  const int width = std::stoi(words[1]), height = std::stoi(words[2]);
  if (width < 1 || height < 1) throw std::invalid_argument("both sides of a frame are above zero");
  const auto told = [](const std::string& release, const std::string& error) {
    std::cout << (error.empty() ? "changed to " + release : "stayed, since " + error) << std::endl;
  };
  auto network = edgedeploy::Network::follow(count > 3 ? words[3] : kModel, told);
  std::vector<char> frame(std::size_t(width) * height * 3 / 2);  // all of Y, then U and V of half the width and height
  for (long number = 0; std::cin.read(frame.data(), frame.size()); ++number) {
    const auto all = network.detect({frame.data(), width, height, ED_I420});
    std::printf("frame %ld:", number);
    for (const auto& found : all) print(found, &found == &all.front() ? " " : ", ");
    std::printf("\n");
    std::fflush(stdout);
  }
} catch (const std::exception& error) {
  std::cerr << "watch: " << error.what() << std::endl;
  return 1;
}
