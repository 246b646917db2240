/* SPDX-License-Identifier: MIT
 *
 * Level `number`, from 0 to 1, of an 8-bit dynamic map (Dettmers 2015) without sign, with the bits of
 * bitsandbytes: 7 decades, the first with `parts` equal parts of [0.1, 1], each of the others with
 * twice as many; a level in the middle of each part; and 1. Every operation is rounded on its own.
 * For GLSL, and for C with LEVEL_FUNCTION static and EXACT empty.
 */
/* Border i of `parts` parts: 0.1 + 0.9 i / parts, or 1 - 0.9 (parts - i) / parts in the upper half,
 * rounded once: 0.9 is the sum of two numbers whose products are exact. */
LEVEL_FUNCTION float part_border(float parts, float i)
{
    const bool up = 2.0F * i >= parts;
    EXACT const float part = (up ? i - parts : i) / parts, from = up ? 1.0F : 0.1F;
    EXACT const float large = 0.89990234375F * part, small = 9.7632408e-5F * part;
    EXACT const float sum = from + large, added = sum - from;
    EXACT const float lost = (from - (sum - added)) + (large - added);
    EXACT const float border = sum + (lost + small);
    return border;
}

LEVEL_FUNCTION float dynamic_level(float parts, float number)
{
    float decade = 1e-6F;
    if (number == 0.0F)
        return 0.0F;
    for (int k = 0; k < 6 && number > parts; k++) {
        number -= parts;
        parts *= 2.0F;
        decade = k == 0 ? 1e-5F : k == 1 ? 1e-4F : k == 2 ? 1e-3F : k == 3 ? 0.01F
                              : k == 4 ? 0.1F : 1.0F;
    }
    if (number > parts)
        return 1.0F;
    EXACT const float two = part_border(parts, number - 1.0F) + part_border(parts, number);
    EXACT const float level = decade * (two / 2.0F);
    return level;
}
