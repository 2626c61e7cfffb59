#include "data/images/image_reader.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "data/images/image_codec.h"
#include "image_files.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::data {
namespace {

using base::InputError;

std::string big_endian_bytes(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}
std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto sum = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())));
  return big_endian_bytes(static_cast<uint32_t>(data.size())) + body + big_endian_bytes(sum);
}
/// A grey PNG with one row, all of it `value`.
std::string one_row(uint32_t width, char value) {
  const std::string row = std::string(1, '\0') + std::string(width, value);
  std::string packed(compressBound(row.size()), '\0');
  uLongf size = packed.size();
  compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(row.data()), row.size(), 9);
  packed.resize(size);
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR", big_endian_bytes(width) + big_endian_bytes(1) + std::string("\x08\0\0\0\0", 5)) +
         png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

// By default, libpng stops at a million pixels per side and calls larger images invalid.
TEST(ImageReader, ASideMayBeAsLongAsThePixelsAllow) {
  const std::string bytes = one_row(1'000'001, 77);
  const Image image = decode_image(bytes, "long.png");
  EXPECT_EQ(image.width, 1'000'001);
  EXPECT_EQ(image.at(0, 1'000'000)[2], 77);
  test::expect_error<InputError>([&] { decode_image(bytes, "long.png", {.max_pixels = 1'000'000}); },
                                 {"long.png: ", "1000001 x 1 pixels", "at most 1000000"});
}

TEST(ImageReader, RowsAndTheirNumberAreLimited) {
  const std::string bytes = one_row(1'000'001, 77);
  test::expect_error<InputError>([&] { decode_image(bytes, "long.png", {.max_width = 1'000'000}); },
                                 {"long.png: ", "1000001 x 1 pixels", "at most 1000000 in a row"});
  // One pixel wide: what a row costs does not depend on its pixels.
  std::string tall = bytes;
  std::swap_ranges(tall.begin() + 16, tall.begin() + 20, tall.begin() + 20);
  const auto checksum = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(tall.data()) + 12, 17));
  for (int i = 0; i < 4; ++i) tall[static_cast<size_t>(29 + i)] = static_cast<char>(checksum >> (24 - 8 * i));
  test::expect_error<InputError>([&] { decode_image(tall, "tall.png", {.max_height = 1'000'000}); },
                                 {"tall.png: ", "1 x 1000001 pixels", "at most 1000000 rows"});
  const ImageLimits usual;
  EXPECT_LE(usual.max_width, 1 << 20);
  EXPECT_LE(usual.max_height, 1 << 20);
}

TEST(ImageReader, ErrorsNameTheFileAndWhatIsThere) {
  const test::TemporaryFolder folder;
  test::expect_error<InputError>([&] { read_image(folder / "none.jpg"); }, {folder / "none.jpg"});
  write_text(folder / "a.jpg", "GIF89a and so on");
  test::expect_error<InputError>([&] { read_image(folder / "a.jpg"); },
                                 {folder / "a.jpg", "expected a JPEG or PNG image", "GIF"});
  write_text(folder / "b.png", "");
  test::expect_error<InputError>([&] { read_image(folder / "b.png"); }, {folder / "b.png", "an empty file"});
}

TEST(ImageReader, ContentDecidesNotTheName) {
  EXPECT_EQ(read_image_header(golden_image("png_named_jpg.jpg")).format, "PNG");
  EXPECT_EQ(read_image_header(golden_image("jpeg_named_png.png")).format, "JPEG");
}

TEST(ImageReader, HeadersTellTheSizeThatDecodingGives) {
  for (const auto& entry : std::filesystem::directory_iterator(MNEMO_SOURCE_DIR "/tests/golden/data/images/files")) {
    const std::string path = entry.path().string();
    const Image image = read_image(path);
    const ImageHeader header = read_image_header(path);
    EXPECT_EQ(header.height, image.height) << path;
    EXPECT_EQ(header.width, image.width) << path;
  }
}

TEST(ImageReader, PixelsAreLimitedBeforeAnythingIsDecoded) {
  for (const char* name : {"rgb8.png", "rgb_444.jpg"}) {
    const std::string bytes = base::read_file(golden_image(name));
    EXPECT_EQ(decode_image(bytes, "x", {.max_pixels = 37 * 29}).width, 37);
    test::expect_error<InputError>([&] { decode_image(bytes, "x", {.max_pixels = 37 * 29 - 1}); },
                                   {"x: ", "37 x 29 pixels", "at most 1072"});
  }
}

// A header that claims more than so few bytes can hold is rejected before memory is allocated for it.
TEST(ImageReader, ImpossibleSizesAreRefused) {
  std::string jpeg = base::read_file(golden_image("rgb_444.jpg"));
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, std::string("\x30\x00\x30\x00", 4));  // 12288 x 12288
  test::expect_error<InputError>([&] { decode_image(jpeg, "large.jpg"); },
                                 {"large.jpg: JPEG: ", "too few for 12288 x 12288 pixels"});
  jpeg.replace(frame, 2, "\xFF\xC9");  // a frame with arithmetic coding, where a byte can be any number of blocks
  test::expect_error<InputError>([&] { decode_image(jpeg, "large.jpg"); }, {"large.jpg: JPEG: ", "arithmetic coding"});
}

/// A grey progressive JPEG without contents: a scan of means, and `details` scans of some bytes each, since a code of
/// 15 bits says that 16,384 blocks are empty. All codes are zeros.
std::string progressive_jpeg(int height, int width, int details) {
  const auto segment = [](char marker, const std::string& data) {
    const size_t length = data.size() + 2;
    return std::string{'\xFF', marker, static_cast<char>(length >> 8), static_cast<char>(length)} + data;
  };
  const auto table_of_one_code = [&](char kind, char symbol) {
    return segment('\xC4', std::string{kind, '\1'} + std::string(15, '\0') + symbol);
  };
  const auto scan = [&](char first, char last, int bits) {
    return segment('\xDA', {'\1', '\1', '\0', first, last, '\0'}) +
           std::string(static_cast<size_t>(bits + 7) / 8, '\0');
  };
  const int blocks = (height + 7) / 8 * ((width + 7) / 8);
  std::string file = "\xFF\xD8" + segment('\xDB', std::string(1, '\0') + std::string(64, '\1')) +
                     segment('\xC2',
                             {'\x8', static_cast<char>(height >> 8), static_cast<char>(height),
                              static_cast<char>(width >> 8), static_cast<char>(width), '\1', '\1', '\x11', '\0'}) +
                     table_of_one_code('\0', '\0') + scan(0, 0, blocks) + table_of_one_code('\x10', '\xE0');
  for (int i = 0; i < details; ++i) file += scan(1, 63, (blocks + 16383) / 16384 * 15);
  return file + "\xFF\xD9";
}

// A scan of some bytes goes through all pixels, so the size of a file says little of the time that it takes.
TEST(ImageReader, ScansOfAProgressiveFileAreLimited) {
  EXPECT_EQ(decode_image(progressive_jpeg(8, 16, 99), "small").width, 16);
  test::expect_error<InputError>([] { decode_image(progressive_jpeg(8, 16, 100), "small"); },
                                 {"small: JPEG: 16 x 8 pixels in more than 100 scans", "fewer"});
  EXPECT_EQ(decode_image(progressive_jpeg(8000, 8000, 9), "large").width, 8000);
  test::expect_error<InputError>([] { decode_image(progressive_jpeg(8000, 8000, 80), "large"); },
                                 {"large: JPEG: 8000 x 8000 pixels in more than 62 scans"});
}

TEST(ImageReader, CutOffFilesAreRefusedWhereverTheyEnd) {
  for (const char* name : {"rgb8.png", "rgb_420.jpg", "rgb_progressive.jpg", "palette8_interlaced.png"}) {
    const std::string bytes = base::read_file(golden_image(name));
    for (size_t length = 0; length < bytes.size(); length += 1 + bytes.size() / 200) {
      EXPECT_THROW(decode_image(std::string_view(bytes).substr(0, length), name), InputError)
          << name << ", " << length << " of " << bytes.size();
    }
  }
}

TEST(ImageReader, OrientationsUndoOneAnother) {
  const Image image = read_image(golden_image("photo_7865c0.jpg"));
  Image part(5, 3);
  std::copy_n(image.bytes.begin() + 3000, part.bytes.size(), part.bytes.begin());
  for (const int self : {0, 1, 2, 3, 4, 5, 7, 9}) EXPECT_EQ(oriented(oriented(part, self), self), part) << self;
  EXPECT_EQ(oriented(oriented(part, 6), 8), part);
  EXPECT_EQ(oriented(oriented(part, 6), 6), oriented(part, 3));
  EXPECT_EQ(oriented(oriented(part, 5), 2), oriented(part, 6));
}

TEST(ExifOrientation, ReadsBothByteOrdersAndSurvivesAnythingElse) {
  const std::string big("MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", 22);
  const std::string little("II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 22);
  EXPECT_EQ(exif_orientation(big), 6);
  EXPECT_EQ(exif_orientation(little), 6);
  for (const std::string& whole : {big, little}) {
    for (size_t length = 0; length < whole.size(); ++length) {
      const int found = exif_orientation(std::string_view(whole).substr(0, length)).value_or(1);
      EXPECT_TRUE(found == 1 || (found == 6 && length >= 20)) << length;
    }
    std::string far = whole;
    far.replace(4, 4, "\xff\xff\xff\xff");
    EXPECT_FALSE(exif_orientation(far));
  }
}

TEST(ExifOrientation, StandsInTheHeader) {
  const ImageHeader plain = read_image_header(golden_image("orientation_1.jpg"));
  for (int n = 0; n <= 9; ++n) {
    const ImageHeader header = read_image_header(golden_image(fmt::format("orientation_{}.jpg", n)));
    EXPECT_EQ(header.orientation, n >= 1 && n <= 8 ? n : 1);
    EXPECT_EQ(header.height, n >= 5 && n <= 8 ? plain.width : plain.height) << n;
  }
  EXPECT_EQ(read_image_header(golden_image("orientation_6.png")).orientation, 6);
}

// ExifTool may append it.
TEST(ExifOrientation, MayStandAfterThePixels) {
  std::string png = base::read_file(golden_image("orientation_6.png"));
  const Image image = decode_image(png, "first");
  const size_t at = png.find("eXIf") - 4, length = 12 + static_cast<unsigned char>(png[at + 3]);
  const std::string chunk = png.substr(at, length);
  png.erase(at, length).insert(png.size() - 12, chunk);
  const test::TemporaryFolder folder;
  base::write_file_atomic(folder / "last.png", png);
  EXPECT_EQ(read_image_header(folder / "last.png").orientation, 6);
  EXPECT_EQ(read_image_header(folder / "last.png").height, image.height);
  EXPECT_EQ(read_image(folder / "last.png"), image);
}

/// As Pillow's getexif() has it: XMP counts where EXIF says nothing.
TEST(ExifOrientation, MayStandInXmpAlone) {
  const std::string exif("MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", 22);
  EXPECT_EQ(orientation_of("", R"(<rdf:Description tiff:Orientation="8"/>)"), 8);
  EXPECT_EQ(orientation_of("", "tiff:Orientation <tiff:Orientation>3</tiff:Orientation>"), 3);
  EXPECT_EQ(orientation_of(exif, R"(tiff:Orientation="8")"), 6);
  for (const char* none :
       {"", "tiff:Orientation", "tiff:Orientation=\"", "tiff:Orientation=\"9\"", "Orientation=\"3\""})
    EXPECT_EQ(orientation_of("", none), 1) << none;
  const std::string xmp = R"(<x tiff:Orientation="6"/>)", jpeg = base::read_file(golden_image("photo_7865c0.jpg"));
  const std::string name("http://ns.adobe.com/xap/1.0/\0", 29);
  const auto size = static_cast<char>(2 + name.size() + xmp.size());
  const std::string turned = jpeg.substr(0, 2) + std::string("\xFF\xE1\0", 3) + size + name + xmp + jpeg.substr(2);
  EXPECT_EQ(decode_image(turned, "turned"), oriented(decode_image(jpeg, "plain"), 6));
}

}  // namespace
}  // namespace mnemo::data
