package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// exchange sends messages for clients of another protocol, or takes theirs: judge send ENDPOINT TOPIC COUNT,
// judge take ENDPOINT GROUP TOPIC=COUNT...
func exchange(words []string) {
	endpoint = words[1]
	rmq.EnableSsl = false
	if words[0] == "send" {
		count, err := strconv.Atoi(words[3])
		must(err)
		sendAcross(words[2], count)
	} else {
		for _, each := range words[3:] {
			name, told, _ := strings.Cut(each, "=")
			count, err := strconv.Atoi(told)
			must(err)
			takeAcross(words[2]+"-"+name, name, count)
		}
	}
}

func tagged(to string, number int) *rmq.Message {
	made := message(number)
	made.Topic = to
	made.Body = []byte("body " + strconv.Itoa(number))
	made.SetTag("tag")
	return made
}

func sendAcross(to string, count int) {
	topic = to
	producer := producer()
	for number := range count {
		store(producer, tagged(to, number))
	}
	late := tagged(to+"-late", 0)
	late.SetDelayTimestamp(time.Now().Add(5 * time.Second))
	store(producer, late)
	fmt.Println("sent")
	must(producer.GracefulStop())
}

func takeAcross(by, from string, count int) {
	consumer := subscribed(from, by, rmq.SUB_ALL)
	for _, each := range take(consumer, count, 32) {
		tag := ""
		if each.GetTag() != nil {
			tag = *each.GetTag()
		}
		fmt.Println(strings.Join([]string{
			"got", from, string(each.GetBody()), strings.Join(each.GetKeys(), " "), tag, each.GetProperties()["number"],
		}, "\t"))
	}
	must(consumer.GracefulStop())
}
