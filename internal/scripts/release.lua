-- Deletes the key if it holds the value. Where others queue, it hands the key on instead: it
-- reserves the key for the first of them that hears of it.
--
--     KEYS: key [queue]   ARGV: value [, window ms [, member [, ticket, keep ms]]]
--
-- It returns 1 if it deleted the key and 2 if it handed it on. It returns 0 if there was no key,
-- and a negative number if the key is somebody else's: -1 if that never expires, -2-ms if it
-- expires in ms milliseconds. A key that is reserved for the member is handed on in the same way;
-- the reply is 0 then. The member leaves the queue. With a ticket it takes its place again
-- instead, before the key is handed on.
--
-- A member is a channel of 39 bytes and a number, which is what it hears there. A reservation is
-- "~" and the member, and lasts for the window. A member that does not hear is dead, and passed
-- over. A user who may not touch the queue deletes the key. hears.lua is sent in front.

local key, queue, member = KEYS[1], KEYS[2], ARGV[3]
local v = call('GET', key)
local mine = v == ARGV[1]
if mine or member and v == '~' .. member then
	if ARGV[4] then
		call('ZADD', queue, ARGV[4], member)
		call('PEXPIRE', queue, ARGV[5])
	end
	local first
	while queue do
		local to = pcall('ZPOPMIN', queue)[1]
		if not to then break end
		if to ~= member or ARGV[4] then
			first = first or to
			if to == member or hears(to) then
				first = to
				break
			end
		end
	end
	if first then
		call('SET', key, '~' .. first, 'PX', ARGV[2])
		return mine and 2 or 0
	end
	call('DEL', key)
	return mine and 1 or 0
end
if member and not ARGV[4] then pcall('ZREM', queue, member) end
if not v then return 0 end
local ttl = call('PTTL', key)
if ttl < 0 then return -1 end
return -2 - ttl
