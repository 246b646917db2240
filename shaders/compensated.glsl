/* SPDX-License-Identifier: MIT
 *
 * Sums of tens of thousands of numbers with an error of two roundings, regardless of their count
 * (Kahan, Pracniques: further remarks on reducing truncation errors, 1965). `lost` is the excess of
 * `sum`; both begin at 0.
 */
void add_to(inout vec4 sum, inout vec4 lost, vec4 v)
{
    precise vec4 wanted = v - lost, next = sum + wanted;
    precise vec4 added = next - sum, excess = added - wanted;
    lost = excess;
    sum = next;
}
void add_to(inout float sum, inout float lost, float v)
{
    precise float wanted = v - lost, next = sum + wanted;
    precise float added = next - sum, excess = added - wanted;
    lost = excess;
    sum = next;
}
