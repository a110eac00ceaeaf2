-- chance - what counts say and what may be chance: intervals and tests for shares, computed in double precision.
-- Sources: Wilson 1927 (score interval); Newcombe 1998 (interval of a difference from two Wilson intervals); pooled two-proportion z
-- test; Fisher's exact test (two-sided: the sum of all tables no likelier than the one seen), for counts too small for the z test;
-- sample size for a two-sided test of two proportions (Fleiss 1981, without continuity correction).

local Z95 = 1.959963984540054
local Z80 = 0.8416212335729143 -- power 80 %

-- Complementary error function: the series of erf below 2, a continued fraction (modified Lentz) above.
local function erfc(x)
  if x < 0 then return 2 - erfc(-x) end
  if x < 2 then
    local term, sum, n = x, x, 0
    repeat
      n = n + 1
      term = -term * x * x / n
      sum = sum + term / (2 * n + 1)
    until math.abs(term) < 1e-17 * math.abs(sum) or n > 200
    return 1 - 2 / math.sqrt(math.pi) * sum
  end
  -- erfc(x) = exp(-x^2)/sqrt(pi) * 1/(x + (1/2)/(x + (2/2)/(x + (3/2)/(x + ...
  local tiny = 1e-300
  local f, c, d = x, x, 0
  for n = 1, 500 do
    local a = n / 2
    d = x + a * d
    if d == 0 then d = tiny end
    c = x + a / c
    d = 1 / d
    local delta = c * d
    f = f * delta
    if math.abs(delta - 1) < 1e-16 then break end
  end
  return math.exp(-x * x) / math.sqrt(math.pi) / f
end

-- Lower and upper end of the 95 % interval for k of n.
local function wilson(k, n)
  if n <= 0 then return 0, 1 end
  local p, z2 = k / n, Z95 * Z95
  local middle = (p + z2 / (2 * n)) / (1 + z2 / n)
  local half = Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
  return k == 0 and 0 or math.max(0, middle - half), k == n and 1 or math.min(1, middle + half)
end

-- b - a: difference of the shares and its 95 % interval.
local function newcombe(ka, na, kb, nb)
  local pa, pb = ka / na, kb / nb
  local la, ua = wilson(ka, na)
  local lb, ub = wilson(kb, nb)
  local d = pb - pa
  return d, d - math.sqrt((pb - lb) ^ 2 + (ua - pa) ^ 2), d + math.sqrt((ub - pb) ^ 2 + (pa - la) ^ 2)
end

local function log_factorial(n)
  if n < 2 then return 0 end
  if n < 50 then
    local s = 0
    for i = 2, n do s = s + math.log(i) end
    return s
  end
  local x = n + 1 -- Stirling's series of log gamma
  return (x - 0.5) * math.log(x) - x + 0.9189385332046727 + 1 / (12 * x) - 1 / (360 * x ^ 3) + 1 / (1260 * x ^ 5)
end

local function fisher(ka, na, kb, nb)
  local k, n = ka + kb, na + nb
  local constant = log_factorial(k) + log_factorial(n - k) + log_factorial(na) + log_factorial(nb) - log_factorial(n)
  local function chance_of(i)
    return math.exp(constant - log_factorial(i) - log_factorial(k - i) - log_factorial(na - i) - log_factorial(nb - k + i))
  end
  local seen, sum = chance_of(ka), 0
  for i = math.max(0, k - nb), math.min(k, na) do
    local p = chance_of(i)
    if p <= seen * (1 + 1e-7) then sum = sum + p end
  end
  return math.min(1, sum)
end

local FISHER_SUCCESSES_MAX = 5000

-- Two-sided p of "both shares are equal", and which test it is.
local function two_shares(ka, na, kb, nb)
  local k, n = ka + kb, na + nb
  local least = math.min(na, nb) * math.min(k, n - k) / n -- smallest expected count
  if least < 5 and math.min(k, n - k) <= FISHER_SUCCESSES_MAX then
    if k > n - k then return fisher(na - ka, na, nb - kb, nb), 'Fisher' end
    return fisher(ka, na, kb, nb), 'Fisher'
  end
  local pooled = k / n
  local se = math.sqrt(pooled * (1 - pooled) * (1 / na + 1 / nb))
  if se == 0 then return 1, 'z' end
  return erfc(math.abs(kb / nb - ka / na) / se / math.sqrt(2)), 'z'
end

-- Requests an arm needs so that a difference as large as the one between pa and pb is seen in 4 of 5 experiments.
local function needed(pa, pb)
  local d, mean = math.abs(pb - pa), (pa + pb) / 2
  if d == 0 then return nil end
  return math.ceil((Z95 * math.sqrt(2 * mean * (1 - mean)) + Z80 * math.sqrt(pa * (1 - pa) + pb * (1 - pb))) ^ 2 / (d * d))
end
