/* classify RELEASE IMAGE SCALE [MEAN...]: the five likeliest classes of an image, a PGM (grey) or PPM (as B, G, R).
 *
 *   cc classify.c $(pkg-config --cflags --libs edgedeploy) -o classify
 *   ./classify digits digit.pgm 0.004
 *   ./classify squeezenet_v1.1 cat.ppm 1 104.007 116.669 122.679
 */
#include <edgedeploy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(void) { return fprintf(stderr, "classify: %s\n", ed_error()), 1; }

/* The image stretched to the size of the input, as (value - mean) * scale, plane by plane: B, G, R. */
static void fill(float* input, const int64_t* shape, const unsigned char* image, int width, int height, float scale,
                 const float* mean) {
  const int planes = (int)shape[1], rows = (int)shape[2], columns = (int)shape[3];
  for (int plane = 0; plane < planes; plane++) {
    for (int row = 0; row < rows; row++) {
      for (int column = 0; column < columns; column++) {
        int y = row * height / rows, x = column * width / columns;
        float value = image[(y * width + x) * planes + planes - 1 - plane];
        *input++ = (value - mean[plane]) * scale;
      }
    }
  }
}

int main(int count, char** words) {
  if (count < 4) return fprintf(stderr, "usage: classify RELEASE IMAGE SCALE [MEAN...]\n"), 2;
  ed_network* network;
  ed_tensor input, output;
  if (ed_open(words[1], 0, &network) || ed_describe_input(network, 0, &input)) return failed();
  if (ed_describe_output(network, 0, &output)) return failed();
  int kind, width, height;
  FILE* file = fopen(words[2], "rb");
  if (!file || fscanf(file, "P%d %d %d 255", &kind, &width, &height) != 3 || fgetc(file) == EOF) {
    return fprintf(stderr, "classify: %s is no image\n", words[2]), 1;
  }
  const int channels = kind == 5 ? 1 : 3;
  if (input.rank != 4 || input.shape[1] != channels) return fprintf(stderr, "classify: not for this network\n"), 1;
  unsigned char* image = calloc((size_t)width * height, channels);
  float *values = malloc(input.bytes), mean[3] = {0, 0, 0};
  for (int i = 4; i < count && i < 7; i++) mean[i - 4] = strtof(words[i], NULL);
  if (fread(image, channels, (size_t)width * height, file) != (size_t)width * height) return 1;
  fill(values, input.shape, image, width, height, strtof(words[3], NULL), mean);
  const void* result;
  if (ed_set_input(network, 0, values, input.bytes) || ed_run(network)) return failed();
  if (ed_get_output(network, 0, &result)) return failed();
  float* scores = memcpy(malloc(output.bytes), result, output.bytes);
  for (int rank = 0; rank < 5; rank++) {
    size_t best = 0;
    for (size_t i = 1; i < output.bytes / sizeof *scores; i++) best = scores[i] > scores[best] ? i : best;
    printf("%f, %zu\n", scores[best], best);
    scores[best] = -1;
  }
  return ed_close(network);
}
