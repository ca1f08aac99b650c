// watch MODEL: an inference for each frame that comes on standard input, by the release that is in use at that moment.
//
// A frame is the raw float32 values of the network's first input. The likeliest class is printed for each.
#include <algorithm>
#include <edgedeploy.hpp>
#include <iostream>
#include <string>
#include <vector>

int main(int count, char** words) try {
  if (count != 2) throw std::invalid_argument("usage: watch MODEL");
  const auto told = [](const std::string& release, const std::string& error) {
    std::cout << (error.empty() ? "changed to " + release : "stayed, since " + error) << std::endl;
  };
  auto network = edgedeploy::Network::follow(words[1], told);
  std::vector<float> frame(network.inputs().at(0).bytes / sizeof(float));
  while (std::cin.read(reinterpret_cast<char*>(frame.data()), frame.size() * sizeof(float))) {
    network.set_input(0, frame);
    network.run();
    const auto scores = network.output<float>(0);
    const auto best = std::max_element(scores.begin(), scores.end());
    std::cout << *best << ", " << best - scores.begin() << std::endl;
  }
} catch (const std::exception& error) {
  std::cerr << "watch: " << error.what() << std::endl;
  return 1;
}
