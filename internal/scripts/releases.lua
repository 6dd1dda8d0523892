-- Releases many locks at once, as far as nobody queues for them. With 32 locks, a server needs
-- half the time that release.lua takes for them one by one.
--
--     KEYS: key [queue], of each lock   ARGV: value [, window ms], of each lock; how many locks
--
-- It returns an array: 1 for each lock whose key it deleted, and null for each that it leaves to
-- release.lua. Of two releases with the same key, the first deletes it.

local call, pcall = redis.call, redis.pcall
local keys = #KEYS / ARGV[#ARGV]
local replies, gone = {}, {}
for i = 1, #KEYS, keys do
	local key = KEYS[i]
	local done = not gone[key] and pcall('GET', key) == ARGV[i]
		and (keys == 1 or pcall('PTTL', KEYS[i + 1]) == -2)
	if done then gone[#gone + 1], gone[key] = key, true end
	replies[#replies + 1] = done and 1
end
if gone[1] then call('DEL', unpack(gone)) end
return replies
