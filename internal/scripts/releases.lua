-- Releases many locks at once, as far as nobody queues for them. With 32 locks, a server needs
-- half the time that release.lua takes for them one by one.
--
--     KEYS: key [queue], of each lock   ARGV: value, of each lock
--
-- It returns the number of the locks if it deleted all their keys, as it usually does. An array
-- would cost a server 4 % of 25 SETs and their releases (2026-11-24). Otherwise it returns an
-- array. That has 1 for each lock whose key it deleted, and null for each that it leaves to
-- release.lua. Of two with the same key and value, it leaves the second.

local call, pcall = redis.call, redis.pcall
local keys = #KEYS / #ARGV
local gone, n, left = {}, 0, {}
for i, value in ipairs(ARGV) do
	local key = KEYS[(i - 1) * keys + 1]
	if pcall('GET', key) == value and (keys == 1 or pcall('PTTL', KEYS[i * keys]) == -2) then
		n = n + 1
		gone[n] = key
	else
		left[i] = true
	end
end
local deleted = n > 0 and call('DEL', unpack(gone))
if deleted == #ARGV then return deleted end
local replies, before = {}, {}
for i = 1, #ARGV do
	local key = KEYS[(i - 1) * keys + 1]
	replies[i] = not left[i] and not before[key] and 1
	before[key] = before[key] or not left[i]
end
return replies
